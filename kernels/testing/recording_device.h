// For tests of calls that are recorded once and replayed: the guarded processor, which records as
// well. What a GPU would capture is captured here in the same places, and computes the same.
#ifndef MUSTER_KERNELS_TESTING_RECORDING_DEVICE_H_
#define MUSTER_KERNELS_TESTING_RECORDING_DEVICE_H_

#include "kernels/device.h"

namespace muster::kernels {

// Arguments that point elsewhere than to its memory cannot be recorded: by the next launch nobody
// knows what is there. Its events are told late, some Records after their own, when waited for, or
// when asked again and again.
// Any thread, one at a time; its memory is taken and given back by any at any time.
Device& RecordingDevice();

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_TESTING_RECORDING_DEVICE_H_
