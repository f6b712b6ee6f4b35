// For device tests: a CPU device whose memory is accessible only within the device's calls. Any
// other access, which would be impossible for GPU memory, crashes the process at once.
#ifndef MUSTER_KERNELS_TESTING_GUARDED_DEVICE_H_
#define MUSTER_KERNELS_TESTING_GUARDED_DEVICE_H_

#include "kernels/device.h"

namespace muster::kernels {

// Usable from any thread, one at a time.
Device& GuardedDevice();

// Makes the memory accessible while it exists, for work that the device does outside its calls.
// Thread-safe.
class GuardedAccess {
 public:
  GuardedAccess();
  ~GuardedAccess();
  GuardedAccess(const GuardedAccess&) = delete;
  GuardedAccess& operator=(const GuardedAccess&) = delete;
};

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_TESTING_GUARDED_DEVICE_H_
