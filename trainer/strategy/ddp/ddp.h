// ddp: one process per device, each with the whole model. Gradients are all-reduced bucket by
// bucket while backward runs, and every rank performs the same update, as in PyTorch's
// DistributedDataParallel. The step is in step.cc.
#ifndef MUSTER_TRAINER_STRATEGY_DDP_DDP_H_
#define MUSTER_TRAINER_STRATEGY_DDP_DDP_H_

#include <memory>

#include "absl/status/statusor.h"
#include "trainer/strategy/strategy.h"

namespace muster::train {

// Returns the errors of nn::Compile and Optimizer::Create.
absl::StatusOr<std::unique_ptr<StrategySetup>> SetUpDdp(const ModelSetup& setup);

}  // namespace muster::train

#endif  // MUSTER_TRAINER_STRATEGY_DDP_DDP_H_
