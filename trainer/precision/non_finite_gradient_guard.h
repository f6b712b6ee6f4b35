// With loss scaling, what is done about a step whose gradients overflow: all ranks skip it, and it
// leaves no trace.
#ifndef MUSTER_TRAINER_PRECISION_NON_FINITE_GRADIENT_GUARD_H_
#define MUSTER_TRAINER_PRECISION_NON_FINITE_GRADIENT_GUARD_H_

#include <cstddef>

#include "absl/status/status.h"
#include "collectives/communicator.h"
#include "kernels/device.h"
#include "trainer/strategy/device_floats.h"

namespace muster::train {

// For the training thread of one generation. `communicator` outlives the guard. All but Agree only
// calls the device, alike in every step.
class NonFiniteGradientGuard {
 public:
  // buffers: the flat array of running statistics that forward changes; outlives the guard.
  // It and gradients are in `device`'s memory.
  NonFiniteGradientGuard(collectives::Communicator* communicator, kernels::Device& device,
                         float* buffers, size_t buffer_elements);

  // Before a step's forward: keeps the running statistics.
  void Begin();
  // Once the gradients are summed: whether each of `count` is a finite number, to *finite().
  void Check(const float* gradients, size_t count);
  // Collective. *finite() becomes whether all ranks say so. The communicator's errors.
  absl::Status Agree();
  // In the device's memory.
  const bool* finite() const { return finite_.as<bool>(); }
  // After Check, for who agrees on it in place of Agree.
  bool* own_finite() { return finite_.as<bool>(); }
  // Where the update is skipped, the running statistics are again as they were at Begin: forward
  // may have put infinities into them.
  void Restore(const kernels::UpdateScalars* scalars);

 private:
  collectives::Communicator* const communicator_;
  kernels::Device& device_;
  float* const buffers_;
  const size_t buffer_elements_;
  DeviceFloats kept_;
  kernels::DeviceMemory finite_;  // a bool
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_PRECISION_NON_FINITE_GRADIENT_GUARD_H_
