// One stage of a pipeline: executes this rank's part of the model for all micro-batches of a batch,
// in the schedule's order.
//
//   1f1b, two stages, four micro-batches (F forward, B backward):
//     stage 0   F0 F1 B0 F2 B1 F3 B2 B3 ·
//     stage 1   ·  F0 B0 F1 B1 F2 B2 F3 B3
#ifndef MUSTER_TRAINER_STRATEGY_PIPELINE_PIPELINE_STAGE_H_
#define MUSTER_TRAINER_STRATEGY_PIPELINE_PIPELINE_STAGE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/pipeline/schedule.h"
#include "trainer/graph/plan.h"
#include "trainer/strategy/pipeline/stage_links.h"
#include "trainer/strategy/process_groups.h"

namespace muster::pipeline {

using train::PipelinePlace;
using train::ProcessGroups;

struct PipelineOptions {
  PipelinePlace place;
  Schedule schedule = Schedule::kOneForwardOneBackward;
  uint32_t micro_batches = 1;
};

// What a stage did since it was compiled, in training.
struct StageTimes {
  absl::Duration forward;   // of all micro-batches that had samples
  absl::Duration backward;  // of the same, with the loss
  absl::Duration waiting;   // for other stages, from a pass's begin until all stages have ended it
  absl::Duration span;      // of the passes: computing, waiting, and what lies between
  uint64_t micro_batches = 0;
};

// For the training thread of one generation. All stages of a pipeline call alike. Errors: the
// communicators'; after one the stage is not to be used any more.
class PipelineStage {
 public:
  // The nodes [begin, end) of `graph`. compiling.max_batch: samples of the pipeline's whole batch.
  // `groups` outlives the stage. Not collective. INVALID_ARGUMENT, also with synchronised batch
  // norm: statistics are of one micro-batch; RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<PipelineStage>> Create(const nn::Graph& graph,
                                                               nn::NodeId begin, nn::NodeId end,
                                                               const nn::CompileOptions& compiling,
                                                               const PipelineOptions& options,
                                                               const ProcessGroups& groups);

  // The stage's part of the model, for one micro-batch. Its arrays are bound there.
  nn::Plan& plan() const { return *plan_; }
  const PipelinePlace& place() const { return options_.place; }

  // Where the caller writes the pipeline's batch; input is null but on the first stage.
  float* input() { return input_.as<float>(); }
  int32_t* labels() { return labels_.as<int32_t>(); }

  using Ready = std::function<void(size_t offset)>;
  // Called on the last stage after each micro-batch's forward pass of `plan`: writes the loss of
  // its samples to *result in the device's memory, and in training the gradient of its outputs.
  using LossFunction =
      absl::FunctionRef<absl::Status(nn::Plan& plan, uint32_t samples, nn::LossResult* result)>;
  // Collective over the pipeline. All forward and backward passes of a batch of `samples`.
  // Gradients, summed over the micro-batches, are in `gradients`, which the plan is bound to;
  // `ready` as nn::Execution::Backward. *result, in the device's memory, becomes the loss: zero but
  // on the last stage.
  absl::Status Train(uint32_t samples, const nn::StepContext& context, LossFunction loss,
                     float* gradients, const Ready& ready, nn::LossResult* result);
  // Collective over the pipeline. The loss without training: zero but on the last stage.
  absl::StatusOr<nn::LossResult> Evaluate(uint32_t samples, LossFunction loss);

  const StageTimes& times() const { return times_; }
  uint32_t in_flight_micro_batches() const { return slots_; }
  // Of all in-flight micro-batches, without workspaces.
  size_t activation_bytes() const { return slots_ * plan_->slot_bytes(); }
  // What one micro-batch sends to the next stage.
  size_t boundary_bytes() const { return links_->activation_bytes(micro_batch_samples_); }
  // Beside the plan's arena and gradients: the batch, and gradients summed so far.
  size_t batch_bytes() const { return input_.bytes() + labels_.bytes(); }
  size_t accumulated_bytes() const { return sum_.bytes(); }
  absl::Duration kernel_time() const { return plan_->kernel_time() + own_kernel_time_; }

 private:
  PipelineStage(const PipelineOptions& options, const ProcessGroups& groups);
  absl::Status Allocate(const nn::Graph& graph, const nn::CompileOptions& compiling);

  uint32_t SamplesOf(uint32_t micro_batch) const;
  uint32_t FirstSampleOf(uint32_t micro_batch) const;
  uint32_t SlotOf(uint32_t micro_batch) const { return micro_batch % slots_; }
  // Posts the receives that an action needs, once.
  absl::Status PostReceives(const Action& action);
  // Whether the slot of a coming forward pass is free.
  bool MayPost(const Action& action) const;
  absl::Status RunActions(const nn::StepContext& context, LossFunction loss, const Ready& ready);
  // `context` is null in evaluation.
  absl::Status Forward(uint32_t micro_batch, const nn::StepContext* context, LossFunction loss);
  absl::Status Backward(uint32_t micro_batch, const Ready& ready);
  absl::Status AwaitAllSent();
  void LoadInput(uint32_t micro_batch);
  void Accumulate(uint32_t micro_batch);
  // Of all micro-batches.
  nn::LossResult SumLosses() const;
  kernels::Device& device() const { return plan_->device(); }

  const PipelineOptions options_;
  const ProcessGroups& groups_;
  const std::vector<Action> actions_;  // of a step
  const uint32_t slots_;               // for micro-batches in flight
  uint32_t micro_batch_samples_ = 0;   // of the largest one
  std::unique_ptr<nn::Plan> plan_;
  std::unique_ptr<StageLinks> links_;
  size_t input_elements_ = 0;     // of a sample
  kernels::DeviceMemory input_;   // of the first stage: float32, the whole batch
  kernels::DeviceMemory labels_;  // the whole batch
  kernels::DeviceMemory losses_;  // LossResult, by micro-batch
  kernels::DeviceMemory sum_;     // of the gradients of micro-batches before the last

  // Of the pass under way.
  uint32_t samples_ = 0;
  float* gradients_ = nullptr;
  std::vector<bool> backward_done_;  // by micro-batch
  uint32_t inputs_posted_ = 0;       // micro-batches
  uint32_t gradients_posted_ = 0;
  StageTimes times_;
  absl::Duration own_kernel_time_;
};

}  // namespace muster::pipeline

#endif  // MUSTER_TRAINER_STRATEGY_PIPELINE_PIPELINE_STAGE_H_
