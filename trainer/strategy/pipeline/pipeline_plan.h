// One stage of a pipeline as the plan of a whole model, so that objectives, optimizers, exchanges
// and checkpoints need not know: its parameters are the stage's, its batch is that of the whole
// pipeline, and a pass of it is the stage's part of all micro-batches, in the schedule's order.
//
//   1f1b, two stages, four micro-batches (F forward, B backward):
//     stage 0   F0 F1 B0 F2 B1 F3 B2 B3 ·
//     stage 1   ·  F0 B0 F1 B1 F2 B2 F3 B3
//
// A pass needs the loss in its middle. Therefore Forward and QueueLoss only note what is to be
// done: in training Backward does everything, in evaluation QueueLoss does. All stages of a
// pipeline call alike; only the last one's loss is not zero.
#ifndef MUSTER_TRAINER_STRATEGY_PIPELINE_PIPELINE_PLAN_H_
#define MUSTER_TRAINER_STRATEGY_PIPELINE_PIPELINE_PLAN_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/pipeline/schedule.h"
#include "trainer/graph/plan.h"
#include "trainer/strategy/pipeline/groups.h"
#include "trainer/strategy/pipeline/stage_links.h"

namespace muster::pipeline {

struct PipelineOptions {
  Place place;
  Schedule schedule = Schedule::kOneForwardOneBackward;
  uint32_t micro_batches = 1;
};

// What a stage did since it was compiled, in training.
struct StageTimes {
  absl::Duration forward;   // of all micro-batches that had rows
  absl::Duration backward;  // of the same, with the loss
  absl::Duration waiting;   // for other stages, from a pass's begin until all stages have ended it
  absl::Duration span;      // of the passes: computing, waiting, and what lies between
  uint64_t micro_batches = 0;
};

class PipelinePlan final : public nn::Plan {
 public:
  // The nodes [begin, end) of `graph`. compiling.max_batch: rows of the pipeline's whole batch.
  // `groups` outlives the plan. Not collective. INVALID_ARGUMENT; RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<PipelinePlan>> Make(const nn::Graph& graph,
                                                            nn::NodeId begin, nn::NodeId end,
                                                            const nn::CompileOptions& compiling,
                                                            const PipelineOptions& options,
                                                            const Groups& groups);

  const StageTimes& times() const { return times_; }
  uint32_t slots() const { return slots_; }
  // Of all slots, without workspaces.
  size_t activation_bytes() const { return slots_ * stage_->slot_bytes(); }
  // That one micro-batch sends to the next stage.
  size_t boundary_bytes() const { return links_->activation_bytes(micro_rows_); }

  absl::Span<const nn::ParameterInfo> parameters() const override { return stage_->parameters(); }
  absl::Span<const nn::ParameterInfo> buffers() const override { return stage_->buffers(); }
  size_t parameter_elements() const override { return stage_->parameter_elements(); }
  size_t buffer_elements() const override { return stage_->buffer_elements(); }
  size_t arena_bytes() const override { return stage_->arena_bytes() + input_.bytes(); }
  std::string layout_digest() const override { return stage_->layout_digest(); }
  std::vector<nn::OperationDescription> Describe() const override { return stage_->Describe(); }

  void Bind(float* parameters, float* gradients, float* buffers) override;
  // Batch norm's statistics are of one micro-batch of one replica.
  void set_statistics_reducer(nn::StatisticsReducer*) override {}
  absl::Status Import(const nn::ParameterInfo& parameter, absl::Span<const float> values) override {
    return stage_->Import(parameter, values);
  }
  absl::Status Export(const nn::ParameterInfo& parameter, absl::Span<float> values) const override {
    return stage_->Export(parameter, values);
  }
  void Initialize(uint64_t seed) override { stage_->Initialize(seed); }
  absl::Status ImportInto(float* flat, const nn::ParameterInfo& parameter,
                          absl::Span<const float> values) const override {
    return stage_->ImportInto(flat, parameter, values);
  }
  absl::Status ExportFrom(const float* flat, const nn::ParameterInfo& parameter,
                          absl::Span<float> values) const override {
    return stage_->ExportFrom(flat, parameter, values);
  }

  kernels::Device& device() const override { return stage_->device(); }
  bool records() const override { return false; }
  // Null but on the first stage.
  float* input() override { return input_.as<float>(); }
  int32_t* labels() override { return labels_.as<int32_t>(); }

  using nn::Plan::Forward;
  void SetStep(const nn::StepContext& context) override { context_ = context; }
  void Forward(uint32_t rows, bool training) override;
  void QueueLoss(uint32_t rows, const nn::LossOptions& options, nn::LossResult* result) override;
  nn::LossResult Loss(uint32_t rows, double label_smoothing, double scale) override;
  // Other objectives are not of pipelines.
  float* output_gradient() override { return nullptr; }
  void Backward(uint32_t rows, const std::function<void(size_t offset)>& ready) override;
  // They stay with each micro-batch.
  absl::Span<const float> logits(uint32_t) const override { return {}; }
  absl::Duration kernel_time() const override { return stage_->kernel_time() + own_kernel_time_; }
  std::vector<nn::DeviceUse> devices() const override;
  absl::Status status() const override { return status_; }

 private:
  PipelinePlan(const PipelineOptions& options, const Groups& groups);
  absl::Status Allocate(const nn::Graph& graph, const nn::CompileOptions& compiling);

  uint32_t RowsOf(uint32_t micro_batch) const;
  uint32_t FirstRowOf(uint32_t micro_batch) const;
  uint32_t SlotOf(uint32_t micro_batch) const { return micro_batch % slots_; }
  // Announces what an action needs, once.
  absl::Status Expect(const Action& action);
  // Whether the slot of a forward that is to come is not in use any more.
  bool MayExpect(const Action& action) const;
  absl::Status Run(const Action& action, const std::function<void(size_t offset)>& ready);
  absl::Status ForwardOne(uint32_t micro_batch, bool training);
  absl::Status BackwardOne(uint32_t micro_batch, const std::function<void(size_t offset)>& ready);
  absl::Status Train(const std::function<void(size_t offset)>& ready);
  absl::Status Evaluate();
  void LoadInput(uint32_t micro_batch);
  void AddUp(uint32_t micro_batch);
  void SumLosses();

  const PipelineOptions options_;
  const Groups& groups_;
  std::vector<Action> actions_;  // of a step
  uint32_t slots_ = 1;
  uint32_t micro_rows_ = 0;  // of the largest micro-batch
  std::unique_ptr<nn::Plan> stage_;
  std::unique_ptr<StageLinks> links_;
  size_t input_elements_ = 0;       // of a row
  kernels::DeviceMemory input_;     // of the first stage: float32, the whole batch
  kernels::DeviceMemory labels_;    // the whole batch
  kernels::DeviceMemory losses_;    // LossResult, by micro-batch
  kernels::DeviceMemory own_loss_;  // LossResult, of Loss
  float* gradients_ = nullptr;
  kernels::DeviceMemory sum_;  // of the gradients of micro-batches before the last

  // Of the pass under way.
  nn::StepContext context_;
  uint32_t rows_ = 0;
  bool training_ = false;
  nn::LossOptions loss_options_;
  nn::LossResult* loss_ = nullptr;
  std::vector<bool> backward_done_;  // by micro-batch
  uint32_t inputs_expected_ = 0;     // micro-batches
  uint32_t gradients_expected_ = 0;
  absl::Status status_;
  StageTimes times_;
  absl::Duration own_kernel_time_;
};

}  // namespace muster::pipeline

#endif  // MUSTER_TRAINER_STRATEGY_PIPELINE_PIPELINE_PLAN_H_
