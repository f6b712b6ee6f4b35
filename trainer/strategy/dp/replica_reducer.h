// Sums over the replicas of a model that threads of one process compute, for batch norm's
// statistics.
#ifndef MUSTER_TRAINER_STRATEGY_DP_REPLICA_REDUCER_H_
#define MUSTER_TRAINER_STRATEGY_DP_REPLICA_REDUCER_H_

#include <barrier>
#include <cstddef>
#include <vector>

#include "kernels/device.h"
#include "trainer/graph/execution.h"

namespace muster::train {

// What the replicas' reducers share.
class ReplicaSum {
 public:
  explicit ReplicaSum(size_t replicas)
      : arrays_(replicas), barrier_(static_cast<std::ptrdiff_t>(replicas)) {}

  // Adds up over other processes what the replicas' sums are; null, as at first: there are none.
  // Not during a Sum.
  void set_outer(nn::StatisticsReducer* outer) { outer_ = outer; }

 private:
  friend class ReplicaReducer;

  std::vector<const void*> arrays_;  // of this sum, by replica, in the process's memory
  std::barrier<> barrier_;
  nn::StatisticsReducer* outer_ = nullptr;
};

// One for each replica, called by its thread: a sum waits for all of them. They are added in the
// order of the replicas.
class ReplicaReducer final : public nn::StatisticsReducer {
 public:
  // Outlive the reducer; `device` is the replica's.
  ReplicaReducer(ReplicaSum* sum, size_t replica, kernels::Device* device)
      : sum_(*sum), replica_(replica), device_(*device) {}

  void Sum(double* values, size_t count) override { SumAll(values, count); }
  void Sum(float* values, size_t count) override { SumAll(values, count); }

 private:
  template <typename T>
  void SumAll(T* values, size_t count);

  ReplicaSum& sum_;
  const size_t replica_;
  kernels::Device& device_;
  std::vector<std::byte> stage_;  // where the device has memory of its own
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_STRATEGY_DP_REPLICA_REDUCER_H_
