// From an image's bytes to floats.
#ifndef MUSTER_KERNELS_NORMALIZE_H_
#define MUSTER_KERNELS_NORMALIZE_H_

#include <cstdint>

namespace muster::kernels {

// x uint8 [pixels, channels]; scale, shift float32 [channels] -> y float32 [pixels, channels] = x *
// scale + shift. No array needs an alignment. For (x / 255 - mean) / deviation: scale = 1 / (255 *
// deviation), shift = -mean / deviation.
using Normalize = void(int64_t pixels, int64_t channels, const uint8_t* x, const float* scale,
                       const float* shift, float* y);

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_NORMALIZE_H_
