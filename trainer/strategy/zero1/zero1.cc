#include "trainer/strategy/zero1/zero1.h"

#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "common/status.h"
#include "trainer/strategy/checkpoint_ranges.h"
#include "trainer/strategy/ddp/step.h"
#include "trainer/strategy/single_device_setup.h"
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
  absl::Status SnapshotPart(uint64_t steps, StateSnapshot& snapshot) override {
    const Shares* const shares = path_.update->optimizer_shares();
    if (shares == nullptr) return SnapshotState(steps, snapshot);
    return SnapshotRange(
        steps, CheckpointRanges::Divide(plan_->parameters(), *shares, world().size()), snapshot);
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
