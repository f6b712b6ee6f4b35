// Normalisation of bytes; see cpu::Normalize. Compiled once per instruction set.
#ifndef MUSTER_KERNELS_CPU_IMAGE_NORMALIZE_BODY_H_
#define MUSTER_KERNELS_CPU_IMAGE_NORMALIZE_BODY_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/vector/vector.h"
#include "kernels/functors.h"

namespace muster::kernels::MUSTER_INSTRUCTION_SET {

// Processes whole vectors of kChannels pixels, after which the pattern of channels repeats.
template <int kChannels>
inline void NormalizeChannels(int64_t pixels, const uint8_t* x, const float* scale,
                              const float* shift, float* y) {
  float scales[kChannels * kLanes], shifts[kChannels * kLanes];
  for (int i = 0; i < kChannels * kLanes; ++i) {
    scales[i] = scale[i % kChannels];
    shifts[i] = shift[i % kChannels];
  }
  const int64_t count = pixels * kChannels;
  int64_t i = 0;
  for (; i + kChannels * kLanes <= count; i += kChannels * kLanes) {
    for (int k = 0; k < kChannels; ++k) {
      const int64_t at = i + k * kLanes;
      const AffineFunctor<Vector> affine{Element<Vector>::Load(scales + k * kLanes),
                                         Element<Vector>::Load(shifts + k * kLanes)};
      Element<Vector>::Store(y + at,
                             affine(Element<Vector>::FromInt(Element<Vector>::LoadBytes(x + at))));
    }
  }
  for (; i < count; ++i) {
    y[i] =
        AffineFunctor<float>{scale[i % kChannels], shift[i % kChannels]}(static_cast<float>(x[i]));
  }
}

inline void Normalize(int64_t pixels, int64_t channels, const uint8_t* x, const float* scale,
                      const float* shift, float* y) {
  if (channels == 1) return NormalizeChannels<1>(pixels, x, scale, shift, y);
  if (channels == 3) return NormalizeChannels<3>(pixels, x, scale, shift, y);
  for (int64_t i = 0; i < pixels * channels; ++i) {
    const int64_t c = i % channels;
    y[i] = AffineFunctor<float>{scale[c], shift[c]}(static_cast<float>(x[i]));
  }
}

}  // namespace muster::kernels::MUSTER_INSTRUCTION_SET

#endif  // MUSTER_KERNELS_CPU_IMAGE_NORMALIZE_BODY_H_
