// hybrid: dp within a node and ddp between nodes. One rank per node drives the node's devices
// (dp/dp.h), and the ranks all-reduce the gradient sums of their devices bucket by bucket
// (ddp/step.cc). Synchronized batch norm reduces on both levels (dp/replica_reducer.h).
#ifndef MUSTER_TRAINER_STRATEGY_HYBRID_HYBRID_H_
#define MUSTER_TRAINER_STRATEGY_HYBRID_HYBRID_H_

#include <memory>

#include "absl/status/statusor.h"
#include "trainer/strategy/dp/dp.h"

namespace muster::train {

// Same as SetUpDp: hybrid differs only in its process groups.
inline absl::StatusOr<std::unique_ptr<StrategySetup>> SetUpHybrid(const ModelSetup& setup) {
  return SetUpDp(setup);
}

}  // namespace muster::train

#endif  // MUSTER_TRAINER_STRATEGY_HYBRID_HYBRID_H_
