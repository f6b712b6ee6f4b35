// Reduces batch norm statistics over the model replicas that the threads of one process compute.
#ifndef MUSTER_TRAINER_STRATEGY_DP_REPLICA_REDUCER_H_
#define MUSTER_TRAINER_STRATEGY_DP_REPLICA_REDUCER_H_

#include <barrier>
#include <cstddef>
#include <vector>

#include "kernels/device.h"
#include "trainer/graph/execution.h"

namespace muster::train {

// State shared by the reducers of all replicas.
class ReplicaSum {
 public:
  explicit ReplicaSum(size_t replicas)
      : arrays_(replicas), barrier_(static_cast<std::ptrdiff_t>(replicas)) {}

  // Reducer that combines the sums of the replicas with those of other processes; null (default) if
  // there are none. Must not be called during a Sum.
  void set_outer(nn::StatisticsReducer* outer) { outer_ = outer; }

 private:
  friend class ReplicaReducer;

  std::vector<const void*> arrays_;  // by replica, in host memory
  std::barrier<> barrier_;
  nn::StatisticsReducer* outer_ = nullptr;
};

// Reducer of one replica, called by its thread. A sum waits for all replicas and adds them in
// replica order.
class ReplicaReducer final : public nn::StatisticsReducer {
 public:
  // `sum` and `device`, the replica's device, outlive the reducer.
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
  std::vector<std::byte> stage_;  // staging buffer for devices with their own memory
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_STRATEGY_DP_REPLICA_REDUCER_H_
