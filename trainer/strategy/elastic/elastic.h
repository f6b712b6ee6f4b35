// elastic: ddp on CPUs whose result does not depend on the number of ranks. A global batch always
// has as many shards as the job has ranks at most; a rank runs consecutive shards one after the
// other, and what is summed over ranks is summed over shards in a fixed tree. The step is ddp's.
#ifndef MUSTER_TRAINER_STRATEGY_ELASTIC_ELASTIC_H_
#define MUSTER_TRAINER_STRATEGY_ELASTIC_ELASTIC_H_

#include <memory>

#include "absl/status/statusor.h"
#include "trainer/strategy/strategy.h"

namespace muster::train {

// Returns the errors of nn::Compile and Optimizer::Create; INVALID_ARGUMENT for a device without
// host memory.
absl::StatusOr<std::unique_ptr<StrategySetup>> SetUpElastic(const ModelSetup& setup);

}  // namespace muster::train

#endif  // MUSTER_TRAINER_STRATEGY_ELASTIC_ELASTIC_H_
