#include "trainer/strategy/ddp/ddp.h"

#include <string>
#include <utility>

#include "common/status.h"
#include "trainer/strategy/ddp/step.h"
#include "trainer/strategy/single_device_setup.h"

namespace muster::train {
namespace {

class Ddp final : public DataParallelStrategy {
 public:
  static absl::StatusOr<std::unique_ptr<Strategy>> Create(const StrategyContext& context,
                                                          CompiledModel model) {
    ASSIGN_OR_RETURN(ModelState state, ModelState::Create(model.plan.get(), model.optimizer.get(),
                                                          /*averages=*/context.spec->has_ema()));
    std::unique_ptr<Ddp> strategy(new Ddp(context, std::move(model), std::move(state)));
    RETURN_IF_ERROR(strategy->Build(CreateReplicatedPath, /*threads=*/nullptr));
    return strategy;
  }

 private:
  Ddp(const StrategyContext& context, CompiledModel model, ModelState state)
      : DataParallelStrategy(context, model.plan.get(), std::move(model.optimizer),
                             std::move(state), model.plan.get()),
        plan_(std::move(model.plan)) {}

  const std::unique_ptr<nn::Plan> plan_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<StrategySetup>> SetUpDdp(const ModelSetup& setup) {
  return SetUpOnOneDevice(setup, Ddp::Create);
}

}  // namespace muster::train
