// With loss scaling, makes all ranks skip a step whose gradients overflow and undoes its effects.
#ifndef MUSTER_TRAINER_PRECISION_NON_FINITE_GRADIENT_GUARD_H_
#define MUSTER_TRAINER_PRECISION_NON_FINITE_GRADIENT_GUARD_H_

#include <cstddef>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collectives/communicator.h"
#include "kernels/device.h"
#include "kernels/device_floats.h"

namespace muster::train {

// Used by the training thread of one generation. `communicator` outlives the guard. All methods
// except Agree only issue device calls, the same in every step.
class NonFiniteGradientGuard {
 public:
  // buffers: the flat array of running statistics that forward changes; outlives the guard. Buffers
  // and gradients are in the memory of `device`. RESOURCE_EXHAUSTED if it is out of memory.
  static absl::StatusOr<NonFiniteGradientGuard> Create(collectives::Communicator* communicator,
                                                       kernels::Device& device, float* buffers,
                                                       size_t buffer_elements);

  // Called before a step's forward pass; saves the running statistics.
  void Begin();
  // Called after the gradients are reduced; sets *finite() to whether all `count` gradients are
  // finite.
  void Check(const float* gradients, size_t count);
  // Collective. Sets *finite() to whether it was true on all ranks. Returns the communicator's
  // errors.
  absl::Status Agree();
  // In device memory.
  const bool* finite() const { return finite_.as<bool>(); }
  // Result of Check, for callers that reduce it themselves instead of calling Agree.
  bool* own_finite() { return finite_.as<bool>(); }
  // If the update is skipped, restores the running statistics saved by Begin, because forward may
  // have written infinities.
  void Restore(const kernels::UpdateScalars* scalars);

 private:
  NonFiniteGradientGuard(collectives::Communicator* communicator, kernels::Device& device,
                         float* buffers, size_t buffer_elements);

  collectives::Communicator* const communicator_;
  kernels::Device& device_;
  float* const buffers_;
  const size_t buffer_elements_;
  kernels::DeviceFloats kept_;
  kernels::DeviceMemory finite_;  // a bool
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_PRECISION_NON_FINITE_GRADIENT_GUARD_H_
