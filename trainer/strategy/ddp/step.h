// One training step of ranks that all execute the whole model, and reduce their gradients while
// backward runs. ddp, zero1, dp and hybrid do this step; they differ in what executes the model and
// in how reduced gradients become an update.
//
// A device may be behind: a step is queued on it, and its result is polled later. Where the device
// supports CUDA graphs, forward, loss and backward are captured once for each number of samples,
// and the update once.
#ifndef MUSTER_TRAINER_STRATEGY_DDP_STEP_H_
#define MUSTER_TRAINER_STRATEGY_DDP_STEP_H_

#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer/objective/statistics_reducer.h"
#include "trainer/strategy/step_graphs.h"
#include "trainer/strategy/strategy_base.h"

namespace muster::train {

// A step allocates nothing but what the communicators do.
class DataParallelStrategy : public StrategyBase {
 public:
  absl::Status Step(const data::Batch& batch, uint64_t step, StepTimes& times) override;

 protected:
  // Time spent in phases since it was created.
  struct Phases {
    absl::Duration loss;
    absl::Duration reduction;  // after backward
    absl::Duration update;
  };

  // `plan` and `execution` as StrategyBase.
  DataParallelStrategy(const StrategyContext& context, nn::Plan* plan,
                       std::unique_ptr<Optimizer> optimizer, nn::Execution* execution);

  // Collective, once, before anything else. `threads` as StepParts::threads.
  using PathFactory = absl::FunctionRef<absl::StatusOr<GradientPath>(const StepParts&)>;
  absl::Status Build(PathFactory create_path, kernels::ThreadPool* threads);

  absl::StatusOr<nn::LossResult> EvaluateBatch(const data::Batch& batch, uint64_t global_samples,
                                               data::InputWriter& input) override;
  ReductionPath reduction_path() const { return reduction_path_; }
  const Phases& phases() const { return phases_; }

 private:
  // One accumulation step: its slice of the batch, forward, loss and backward.
  absl::Status RunSlice(const data::Batch& slice, uint32_t index, uint64_t step,
                        uint64_t global_samples);
  // What of it is the same in every step.
  absl::Status ForwardBackward(uint32_t index, uint32_t samples, uint64_t global_samples);
  absl::Duration kernel_time() const;

  nn::Execution& execution_;
  const ReductionPath reduction_path_;
  CommunicatorReducer batch_norm_statistics_;
  data::InputWriter input_;
  StepGraphs graphs_;
  bool captures_passes_ = false;
  Phases phases_;
  absl::Duration input_time_;
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_STRATEGY_DDP_STEP_H_
