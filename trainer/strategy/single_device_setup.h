// Setup of the strategies that compile the whole model for a single device: ddp and zero1.
#ifndef MUSTER_TRAINER_STRATEGY_SINGLE_DEVICE_SETUP_H_
#define MUSTER_TRAINER_STRATEGY_SINGLE_DEVICE_SETUP_H_

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "trainer/strategy/strategy_base.h"

namespace muster::train {

struct CompiledModel {
  std::unique_ptr<nn::Plan> plan;
  std::unique_ptr<Optimizer> optimizer;
};

// Compiles the model and creates the optimizer; StrategySetup::Connect calls `create`. Returns the
// errors of nn::Compile and Optimizer::Create.
absl::StatusOr<std::unique_ptr<StrategySetup>> SetUpOnOneDevice(
    const ModelSetup& setup,
    std::function<absl::StatusOr<std::unique_ptr<Strategy>>(const StrategyContext&, CompiledModel)>
        create);

}  // namespace muster::train

#endif  // MUSTER_TRAINER_STRATEGY_SINGLE_DEVICE_SETUP_H_
