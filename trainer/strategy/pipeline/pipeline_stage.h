// Executes this rank's stage of the model for all micro-batches of a batch, in the order of the
// schedule.
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

// Training times of a stage since it was compiled.
struct StageTimes {
  absl::Duration forward;   // time of all micro-batches with samples
  absl::Duration backward;  // time of the same micro-batches
  absl::Duration waiting;   // time waiting for other stages, until all have finished the pass
  absl::Duration span;      // total duration of the passes
  // Micro-batches measured: none if the process only queues the work of a device.
  uint64_t micro_batches = 0;
};

// Used by the training thread of one generation. All stages of a pipeline make the same calls.
// Methods return the communicators' errors; after an error the stage must not be used.
class PipelineStage {
 public:
  // Compiles nodes [begin, end) of `graph`. compiling.max_batch: samples of the pipeline's whole
  // batch. `groups` outlives the stage. Not collective. INVALID_ARGUMENT, also for synchronized
  // batch norm, which is not supported because statistics cover one micro-batch;
  // RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<PipelineStage>> Create(const nn::Graph& graph,
                                                               nn::NodeId begin, nn::NodeId end,
                                                               const nn::CompileOptions& compiling,
                                                               const PipelineOptions& options,
                                                               const ProcessGroups& groups);

  // Plan of this stage for one micro-batch. The caller binds its arrays.
  nn::Plan& plan() const { return *plan_; }
  const PipelinePlace& place() const { return options_.place; }
  uint32_t micro_batches() const { return options_.micro_batches; }

  // Arrays for the pipeline's whole batch, written by the caller; input() is null except on the
  // first stage.
  float* input() { return input_.as<float>(); }
  int32_t* labels() { return labels_.as<int32_t>(); }

  using Ready = std::function<void(size_t offset)>;
  // Called on the last stage after each micro-batch's forward pass. Writes the loss of its samples
  // to *result in device memory and, in training, the gradient of the plan's outputs.
  using LossFunction =
      absl::FunctionRef<absl::Status(nn::Plan& plan, uint32_t samples, nn::LossResult* result)>;
  // Called before Train. Sets the number of samples of the pipeline's batch, and the context of the
  // step with the batch's first sample.
  void BeginStep(uint32_t samples, const nn::StepContext& context);
  // Collective over the pipeline. Runs all forward and backward passes of a batch. The gradients,
  // summed over the micro-batches, are written to `gradients`, which must be bound to the plan;
  // `ready`: see nn::Execution::Backward. Writes the micro-batches' losses to `losses`
  // [micro_batches], in device memory; they are zero except on the last stage. With
  // supports_graph_capture() it only issues device calls, the same in every step with as many
  // samples, which may be captured.
  absl::Status Train(LossFunction loss, float* gradients, const Ready& ready,
                     nn::LossResult* losses);
  // Collective over the pipeline. Loss in evaluation mode; zero except on the last stage.
  absl::StatusOr<nn::LossResult> Evaluate(uint32_t samples, LossFunction loss);

  bool supports_graph_capture() const {
    return plan_->supports_graph_capture() && (options_.place.stages == 1 || links_->on_devices());
  }

  const StageTimes& times() const { return times_; }
  uint32_t in_flight_micro_batches() const { return slots_; }
  // Activation memory of all micro-batches in flight, without workspaces.
  size_t activation_bytes() const { return slots_ * plan_->slot_bytes(); }
  // Bytes that one micro-batch sends to the next stage.
  size_t boundary_bytes() const { return links_->activation_bytes(micro_batch_samples_); }
  // Memory in addition to the plan's arena and gradients: the batch, and accumulated gradients.
  size_t batch_bytes() const { return input_.bytes() + labels_.bytes(); }
  size_t accumulated_bytes() const { return sum_.bytes(); }
  absl::Duration kernel_time() const { return plan_->kernel_time() + own_kernel_time_; }

 private:
  PipelineStage(const PipelineOptions& options, const ProcessGroups& groups);
  absl::Status Allocate(const nn::Graph& graph, const nn::CompileOptions& compiling);

  uint32_t SamplesOf(uint32_t micro_batch) const;
  uint32_t FirstSampleOf(uint32_t micro_batch) const;
  uint32_t SlotOf(uint32_t micro_batch) const { return micro_batch % slots_; }
  // Posts the receives that an action needs, unless they are posted already.
  absl::Status PostReceives(const Action& action);
  // Whether the receives of a later action can be posted: its slot is free.
  bool MayPost(const Action& action) const;
  absl::Status RunActions(LossFunction loss, const Ready& ready, nn::LossResult* losses);
  absl::Status Forward(uint32_t micro_batch, bool training, LossFunction loss,
                       nn::LossResult* losses);
  absl::Status Backward(uint32_t micro_batch, const Ready& ready);
  absl::Status AwaitAllSent();
  nn::StepContext ContextOf(uint32_t micro_batch) const;
  void LoadInput(uint32_t micro_batch);
  void Accumulate(uint32_t micro_batch);
  // Loss of the last evaluation summed over the micro-batches. Waits for the device.
  nn::LossResult SumLosses() const;
  // Whether the process waits for each pass, and so measures it. If not, it only queues work.
  bool waits() const { return !supports_graph_capture(); }
  kernels::Device& device() const { return plan_->device(); }

  const PipelineOptions options_;
  const ProcessGroups& groups_;
  const std::vector<Action> actions_;  // actions of a step
  const uint32_t slots_;               // micro-batches in flight
  uint32_t micro_batch_samples_ = 0;   // samples of the largest micro-batch
  std::unique_ptr<nn::Plan> plan_;
  std::unique_ptr<StageLinks> links_;
  size_t input_elements_ = 0;     // per sample
  kernels::DeviceMemory input_;   // whole batch, float32; only on the first stage
  kernels::DeviceMemory labels_;  // whole batch
  kernels::DeviceMemory losses_;  // LossResult of an evaluation, by micro-batch
  kernels::DeviceMemory draws_;   // RandomDraw of a step, by micro-batch
  kernels::DeviceMemory sum_;     // accumulated gradients of micro-batches before the last

  // State of the current pass.
  uint32_t samples_ = 0;
  nn::StepContext context_;
  float* gradients_ = nullptr;
  std::vector<bool> backward_done_;  // by micro-batch
  uint32_t inputs_posted_ = 0;       // number of micro-batches
  uint32_t gradients_posted_ = 0;
  StageTimes times_;
  absl::Duration own_kernel_time_;
};

}  // namespace muster::pipeline

#endif  // MUSTER_TRAINER_STRATEGY_PIPELINE_PIPELINE_STAGE_H_
