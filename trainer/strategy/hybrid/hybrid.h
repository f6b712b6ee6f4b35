// hybrid: dp inside a node and ddp between nodes. One rank on each node drives the node's devices
// (dp/dp.h), and the ranks all-reduce the sums of their devices' gradients while the next bucket is
// prepared (ddp/step.cc). Synchronised batch norm sums in both levels (dp/replica_reducer.h).
#ifndef MUSTER_TRAINER_STRATEGY_HYBRID_HYBRID_H_
#define MUSTER_TRAINER_STRATEGY_HYBRID_HYBRID_H_

#include <memory>

#include "absl/status/statusor.h"
#include "trainer/strategy/dp/dp.h"

namespace muster::train {

// As SetUpDp; the ranks' groups make the difference.
inline absl::StatusOr<std::unique_ptr<StrategySetup>> SetUpHybrid(const ModelSetup& setup) {
  return SetUpDp(setup);
}

}  // namespace muster::train

#endif  // MUSTER_TRAINER_STRATEGY_HYBRID_HYBRID_H_
