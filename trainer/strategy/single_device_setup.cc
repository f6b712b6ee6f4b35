#include "trainer/strategy/single_device_setup.h"

#include <string>
#include <utility>

#include "common/status.h"
#include "trainer/device_status.h"

namespace muster::train {
namespace {

using Create =
    std::function<absl::StatusOr<std::unique_ptr<Strategy>>(const StrategyContext&, CompiledModel)>;

class SingleDeviceSetup final : public StrategySetup {
 public:
  SingleDeviceSetup(CompiledModel model, Create create)
      : model_(std::move(model)), create_(std::move(create)) {}

  std::string layout_digest() const override { return model_.plan->layout_digest(); }
  absl::StatusOr<std::unique_ptr<Strategy>> Connect(const StrategyContext& context) override {
    return create_(context, std::move(model_));
  }

 private:
  CompiledModel model_;
  const Create create_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<StrategySetup>> SetUpOnOneDevice(const ModelSetup& setup,
                                                                Create create) {
  nn::CompileOptions compiling = setup.compiling;
  compiling.device = setup.devices.front();
  absl::StatusOr<std::unique_ptr<nn::Plan>> plan = nn::Compile(setup.graph, compiling);
  RETURN_IF_ERROR(WithDeviceExitCode(plan.status()));
  CompiledModel model{.plan = *std::move(plan)};
  ASSIGN_OR_RETURN(model.optimizer, CreateOptimizer(setup, *model.plan));
  return std::make_unique<SingleDeviceSetup>(std::move(model), std::move(create));
}

}  // namespace muster::train
