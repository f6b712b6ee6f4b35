// zero1: ddp in which each rank keeps the optimizer states of its parameter shard only, updates
// that shard, and sends it to the other ranks (Rajbhandari et al. 2020, ZeRO, stage 1). The step is
// ddp's (ddp/step.cc) with the updates of sharded_update.h.
#ifndef MUSTER_TRAINER_STRATEGY_ZERO1_ZERO1_H_
#define MUSTER_TRAINER_STRATEGY_ZERO1_ZERO1_H_

#include <memory>

#include "absl/status/statusor.h"
#include "trainer/strategy/strategy.h"

namespace muster::train {

// Returns the errors of nn::Compile and Optimizer::Create. Connect returns FAILED_PRECONDITION if
// ranks use different parameter layouts, because their shards would differ.
absl::StatusOr<std::unique_ptr<StrategySetup>> SetUpZero1(const ModelSetup& setup);

}  // namespace muster::train

#endif  // MUSTER_TRAINER_STRATEGY_ZERO1_ZERO1_H_
