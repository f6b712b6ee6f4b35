// For tests of CUDA graph capture: a guarded CPU device that also supports capture. Calls are
// captured where a GPU would capture them, and replayed with the same results.
#ifndef MUSTER_KERNELS_TESTING_CAPTURING_DEVICE_H_
#define MUSTER_KERNELS_TESTING_CAPTURING_DEVICE_H_

#include "kernels/device.h"

namespace muster::kernels {

// Arguments outside device memory cannot be captured, because their content may have changed at the
// next launch. Events complete late: after some later Records, when waited for, or when queried
// repeatedly. Usable from any thread, one at a time; its memory may be allocated and freed from any
// thread at any time.
Device& CapturingDevice();

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_TESTING_CAPTURING_DEVICE_H_
