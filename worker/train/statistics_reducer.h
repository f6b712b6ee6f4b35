// Sums over all ranks for a plan whose batch norm's statistics are of all ranks' rows.
#ifndef MUSTER_WORKER_TRAIN_STATISTICS_REDUCER_H_
#define MUSTER_WORKER_TRAIN_STATISTICS_REDUCER_H_

#include <cstddef>

#include "absl/status/status.h"
#include "worker/collectives/communicator.h"
#include "worker/nn/plan.h"

namespace muster::train {

// For the training thread of one generation. A failed sum leaves worthless values to the plan, so
// that whoever runs the plan asks for the status before it uses what came of it.
class CommunicatorReducer final : public nn::StatisticsReducer {
 public:
  // `communicator` outlives the reducer; it may have other operations under way.
  explicit CommunicatorReducer(collectives::Communicator* communicator)
      : communicator_(communicator) {}

  // Does nothing after an error.
  void Sum(double* values, size_t count) override;

  // OK, or the communicator's first error.
  const absl::Status& status() const { return status_; }

 private:
  collectives::Communicator* const communicator_;
  absl::Status status_;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_STATISTICS_REDUCER_H_
