// With loss scaling, what is done about a step whose gradients overflow: all ranks skip it, and it
// leaves no trace.
#ifndef MUSTER_WORKER_TRAIN_OVERFLOW_GUARD_H_
#define MUSTER_WORKER_TRAIN_OVERFLOW_GUARD_H_

#include <cstddef>

#include "absl/status/statusor.h"
#include "worker/collectives/communicator.h"
#include "worker/train/device_floats.h"

namespace muster::train {

// For the training thread of one generation. `communicator` outlives the guard.
class OverflowGuard {
 public:
  // buffers: the flat array of running statistics that forward changes; outlives the guard.
  // It and gradients are in `device`'s memory.
  OverflowGuard(collectives::Communicator* communicator, kernels::Device& device, float* buffers,
                size_t buffer_elements);

  // Before a step's forward: keeps the running statistics.
  void Begin();
  // Once the gradients are summed: whether the loss or one of `count` gradients is no finite
  // number.
  bool Overflowed(double loss, const float* gradients, size_t count);
  // Collective: whether any rank says so. If so, the running statistics are again as they were at
  // Begin: forward may have put infinities into them. The communicator's errors.
  absl::StatusOr<bool> Agree(bool overflowed);

 private:
  collectives::Communicator* const communicator_;
  kernels::Device& device_;
  float* const buffers_;
  const size_t buffer_elements_;
  DeviceFloats kept_;
  const DeviceFloats finite_;  // a bool
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_OVERFLOW_GUARD_H_
