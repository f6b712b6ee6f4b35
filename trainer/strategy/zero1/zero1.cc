#include "trainer/strategy/zero1/zero1.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/status.h"
#include "trainer/strategy/ddp/step.h"
#include "trainer/strategy/single_device_setup.h"
#include "trainer/strategy/zero1/checkpoint_ranges.h"
#include "trainer/strategy/zero1/sharded_update.h"

namespace muster::train {
namespace {

// In a world of one the only shard is the whole array.
absl::StatusOr<GradientPath> CreatePath(const StepParts& parts) {
  return parts.replicas->size() > 1 ? CreateShardedPath(parts) : CreateReplicatedPath(parts);
}

class Zero1 final : public DataParallelStrategy {
 public:
  static absl::StatusOr<std::unique_ptr<Strategy>> Create(const StrategyContext& context,
                                                          CompiledModel model) {
    if (context.canonical_layout && context.groups->world->size() > 1) {
      return absl::FailedPreconditionError(
          "train.strategy.shard_optimizer: the ranks lay out parameters differently (different "
          "processor types); use nodes of one type or turn shard_optimizer off");
    }
    ASSIGN_OR_RETURN(ModelState state, ModelState::Create(model.plan.get(), model.optimizer.get(),
                                                          /*averages=*/context.spec->has_ema()));
    std::unique_ptr<Zero1> strategy(new Zero1(context, std::move(model), std::move(state)));
    RETURN_IF_ERROR(strategy->Build(CreatePath, /*threads=*/nullptr));
    return strategy;
  }

  CheckpointPart checkpoint_part() const override {
    if (path_.update->optimizer_shares() == nullptr) return StrategyBase::checkpoint_part();
    return {.count = world().size(), .index = world().rank()};
  }

  // Each rank writes the tensors of its range, and rank 0 its running statistics.
  absl::StatusOr<ModelTensors> GatherPart(uint64_t steps, ModelTensors buffers) override {
    const Shares* const shares = path_.update->optimizer_shares();
    if (shares == nullptr) return GatherState(steps, std::move(buffers));
    const CheckpointRanges ranges(plan_->parameters(), *shares, world().size());
    const Shares::Share own = ranges.of(world().rank());
    const TensorRange range = {.begin = own.begin, .end = own.end, .buffers = world().rank() == 0};
    const uint64_t batches = TrainedBatches(steps);
    ModelTensors tensors;
    tensors.model = state_.ExportModel(batches, std::move(buffers.model), range);
    // Memory of the states' earlier tensors, which are as many for each state.
    auto memory = std::make_move_iterator(buffers.optimizer.begin());
    const auto tensors_per_state = static_cast<ptrdiff_t>(
        buffers.optimizer.size() / std::max<size_t>(1, optimizer_->states().size()));
    for (const OptimizerState& state : optimizer_->states()) {
      ASSIGN_OR_RETURN(const OptimizerState gathered,
                       GatherRange(world(), device(), state, *shares, ranges));
      const auto end = memory + tensors_per_state;
      std::vector<Tensor> exported = state_.ExportOptimizer({&gathered, 1}, {memory, end}, range);
      memory = end;
      std::move(exported.begin(), exported.end(), std::back_inserter(tensors.optimizer));
    }
    tensors.average = state_.ExportAverage(batches, std::move(buffers.average), range);
    return tensors;
  }

  absl::StatusOr<std::optional<StepResult>> PollStepResult(bool wait) override {
    ASSIGN_OR_RETURN(std::optional<StepResult> result, StrategyBase::PollStepResult(wait));
    // A step's result is available before the devices have gathered its parameters.
    if (result.has_value()) RETURN_IF_ERROR(context_.groups->status());
    return result;
  }

 private:
  Zero1(const StrategyContext& context, CompiledModel model, ModelState state)
      : DataParallelStrategy(context, model.plan.get(), std::move(model.optimizer),
                             std::move(state), model.plan.get()),
        plan_(std::move(model.plan)) {}

  const std::unique_ptr<nn::Plan> plan_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<StrategySetup>> SetUpZero1(const ModelSetup& setup) {
  return SetUpOnOneDevice(setup, Zero1::Create);
}

}  // namespace muster::train
