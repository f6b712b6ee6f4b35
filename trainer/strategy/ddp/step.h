// Training step of ranks that all execute the whole model and reduce their gradients while backward
// runs. Shared by ddp, zero1, elastic, dp and hybrid, which differ in how the model is executed,
// how gradients are reduced and how they are applied.
//
// On an asynchronous device a step is queued and its result is polled later. If the device supports
// CUDA graphs, forward, loss and backward are captured once per batch size, and the update once.
#ifndef MUSTER_TRAINER_STRATEGY_DDP_STEP_H_
#define MUSTER_TRAINER_STRATEGY_DDP_STEP_H_

#include <algorithm>
#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer/objective/statistics_reducer.h"
#include "trainer/strategy/step_graphs.h"
#include "trainer/strategy/strategy_base.h"

namespace muster::train {

// Only the communicators allocate memory during a step.
class DataParallelStrategy : public StrategyBase {
 public:
  absl::Status Step(const data::Batch& batch, uint64_t step, StepTimes& times) override;
  absl::StatusOr<WholeState> CompleteState() override;

 protected:
  // Time spent in each phase since construction.
  struct Phases {
    absl::Duration loss;
    absl::Duration reduction;  // time of the reduction after backward
    absl::Duration update;
  };

  // `plan` and `state`: see StrategyBase. `execution`, to which the arrays are bound, outlives the
  // calls of the strategy's methods, too.
  DataParallelStrategy(const StrategyContext& context, nn::Plan* plan,
                       std::unique_ptr<Optimizer> optimizer, ModelState state,
                       nn::Execution* execution);

  // Collective; called once, before all other methods. `threads`: see StepParts::threads.
  using PathFactory = absl::FunctionRef<absl::StatusOr<GradientPath>(const StepParts&)>;
  absl::Status Build(PathFactory create_path, kernels::ThreadPool* threads);

  // Slices of this rank's share of a batch, which run one after the other and whose gradients are
  // summed.
  virtual uint32_t slices() const { return std::max(1u, spec().accumulation_steps()); }
  virtual data::Batch SliceOf(const data::Batch& batch, uint32_t index) const {
    return batch.Slice(index, slices());
  }
  absl::StatusOr<nn::LossResult> EvaluateBatch(const data::Batch& batch, uint64_t global_samples,
                                               data::InputWriter& input) override;
  ReductionPath reduction_path() const { return reduction_path_; }
  const Phases& phases() const { return phases_; }

 private:
  // Runs forward, loss and backward of a slice.
  absl::Status RunSlice(const data::Batch& slice, uint32_t index, uint64_t step,
                        uint64_t global_samples);
  // The part of RunSlice that is the same in every step and can be captured.
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
