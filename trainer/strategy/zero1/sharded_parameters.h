// Parameters of which each rank updates its own share, with the optimizer's states of that share
// alone, where the ranks do not share memory: after the update everybody gets everybody's share.
//
//   backward ── reduce-scatter ── update of the own share ── all-gather of the parameters
//
// (Rajbhandari et al. 2020, ZeRO: Memory Optimizations Toward Training Trillion Parameter Models,
// stage 1.)
#ifndef MUSTER_TRAINER_STRATEGY_ZERO1_SHARDED_PARAMETERS_H_
#define MUSTER_TRAINER_STRATEGY_ZERO1_SHARDED_PARAMETERS_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collectives/communicator.h"
#include "kernels/device.h"
#include "trainer/optim/optimizer.h"
#include "trainer/strategy/device_floats.h"
#include "trainer/strategy/shares.h"

namespace muster::train {

// Collective. Of an optimizer that keeps its rank's share of `shares`: its states as a whole, on
// rank 0 alone, one after the other in the host's memory and all of them in `device`'s; elsewhere
// nothing. `world` is of the processes. Its errors; RESOURCE_EXHAUSTED.
absl::StatusOr<std::vector<OptimizerState>> GatherStates(collectives::Communicator& world,
                                                         kernels::Device& device,
                                                         const Optimizer& optimizer,
                                                         const Shares& shares);

// For one training thread and one generation. Where the communicator is one of devices, Gather and
// Sum only call the device, alike in every step, and may be captured.
class ShardedParameters {
 public:
  // Collective. `communicator`, whose memory is `device`'s where `by_devices`, and `device` outlive
  // this. RESOURCE_EXHAUSTED when the communicator has no memory.
  static absl::StatusOr<std::unique_ptr<ShardedParameters>> Create(
      collectives::Communicator* communicator, kernels::Device* device, bool by_devices,
      size_t elements);

  // float32 [shares().elements()] in the device's memory, zeros at first.
  float* parameters() { return parameters_; }
  const Shares& shares() const { return shares_; }
  Shares::Share own() const { return shares_.of(communicator_->rank()); }

  // Collective, after the update of the own share. OK: all ranks have everybody's. After an error,
  // the communicator's, they are worth nothing.
  absl::Status Gather();
  // Collective. *sum, in the device's memory, becomes the sum over the ranks.
  absl::Status Sum(double* sum);

 private:
  ShardedParameters(collectives::Communicator* communicator, kernels::Device* device,
                    bool by_devices, size_t elements);
  absl::Status Allocate();
  // The process moves what the device computes in memory of its own.
  bool staged() const { return !by_devices_ && !device_.host_memory(); }

  collectives::Communicator* const communicator_;
  kernels::Device& device_;
  const bool by_devices_;
  const Shares shares_;
  std::unique_ptr<collectives::Allocation> memory_;
  DeviceFloats own_parameters_;  // where staged
  float* gathered_ = nullptr;    // in memory_, padded
  float* parameters_ = nullptr;  // the same, or own_parameters_
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_STRATEGY_ZERO1_SHARDED_PARAMETERS_H_
