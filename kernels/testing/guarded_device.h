// For tests of what runs on a device: the processor, but its memory can be read and written only
// within the device's own calls. Whoever touches it otherwise, as nobody could that of a GPU, dies
// of it at once.
#ifndef MUSTER_KERNELS_TESTING_GUARDED_DEVICE_H_
#define MUSTER_KERNELS_TESTING_GUARDED_DEVICE_H_

#include "kernels/device.h"

namespace muster::kernels {

// Any thread, one at a time.
Device& GuardedDevice();

// As long as it lives the memory can be reached: of work that the device does beside its calls. Any
// thread.
class GuardedAccess {
 public:
  GuardedAccess();
  ~GuardedAccess();
  GuardedAccess(const GuardedAccess&) = delete;
  GuardedAccess& operator=(const GuardedAccess&) = delete;
};

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_TESTING_GUARDED_DEVICE_H_
