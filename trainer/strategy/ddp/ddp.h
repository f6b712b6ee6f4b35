// ddp: a process for each device, each with the whole model. Gradients are all-reduced bucket by
// bucket while backward runs, and every rank does the same update. (PyTorch's
// DistributedDataParallel.) step.cc has the step.
#ifndef MUSTER_TRAINER_STRATEGY_DDP_DDP_H_
#define MUSTER_TRAINER_STRATEGY_DDP_DDP_H_

#include <memory>

#include "absl/status/statusor.h"
#include "trainer/strategy/strategy.h"

namespace muster::train {

// The errors of nn::Compile and Optimizer::Create.
absl::StatusOr<std::unique_ptr<StrategySetup>> SetUpDdp(const ModelSetup& setup);

}  // namespace muster::train

#endif  // MUSTER_TRAINER_STRATEGY_DDP_DDP_H_
