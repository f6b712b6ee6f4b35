// Sharded parameters for ranks that do not share memory: each rank updates its own shard, keeping
// the optimizer states of that shard only, and then all shards are all-gathered.
//
//   backward ── reduce-scatter ── update of the own shard ── all-gather of the parameters
//
// (Rajbhandari et al. 2020, ZeRO: Memory Optimizations Toward Training Trillion Parameter Models,
// stage 1.)
#ifndef MUSTER_TRAINER_STRATEGY_ZERO1_SHARDED_PARAMETERS_H_
#define MUSTER_TRAINER_STRATEGY_ZERO1_SHARDED_PARAMETERS_H_

#include <cstddef>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collectives/communicator.h"
#include "kernels/device.h"
#include "kernels/device_floats.h"
#include "trainer/strategy/shares.h"

namespace muster::train {

// Used by one training thread in one generation. If the communicator connects devices, Gather and
// Sum only issue device calls, the same in every step, and may be captured in a graph.
class ShardedParameters {
 public:
  // Collective. `by_devices`: the communicator connects devices and its memory is that of `device`.
  // `communicator` and `device` outlive this object. RESOURCE_EXHAUSTED if one of them is out of
  // memory.
  static absl::StatusOr<std::unique_ptr<ShardedParameters>> Create(
      collectives::Communicator* communicator, kernels::Device* device, bool by_devices,
      size_t elements);

  // float32 [shares().elements()] in device memory, initially zero.
  float* parameters() { return parameters_; }
  const Shares& shares() const { return shares_; }
  Shares::Share own() const { return shares_.of(communicator_->rank()); }

  // Collective; called after the update of the own shard. On success every rank has all parameters;
  // after an error (the communicator's) they are undefined.
  absl::Status Gather();
  // Collective. Reduces *sum, in device memory, over the ranks.
  absl::Status Sum(double* sum);

 private:
  ShardedParameters(collectives::Communicator* communicator, kernels::Device* device,
                    bool by_devices, size_t elements);
  absl::Status Allocate();
  // Whether parameters are copied through host memory.
  bool staged() const { return !by_devices_ && !device_.host_memory(); }

  collectives::Communicator* const communicator_;
  kernels::Device& device_;
  const bool by_devices_;
  const Shares shares_;
  std::unique_ptr<collectives::Allocation> memory_;
  kernels::DeviceFloats own_parameters_;  // only if staged
  float* gathered_ = nullptr;             // in memory_, padded
  float* parameters_ = nullptr;           // gathered_ or own_parameters_
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_STRATEGY_ZERO1_SHARDED_PARAMETERS_H_
