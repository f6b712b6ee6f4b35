// Max pooling of 2x2 windows with stride 2, alone or fused with preceding operations. Compiled once
// per instruction set.
#ifndef MUSTER_KERNELS_CPU_ACTIVATION_NON_OVERLAPPING_POOL_H_
#define MUSTER_KERNELS_CPU_ACTIVATION_NON_OVERLAPPING_POOL_H_

#include <cstdint>

#include "kernels/cpu/vector/vector.h"
#include "kernels/functors.h"
#include "kernels/pooling.h"

namespace muster::kernels::MUSTER_INSTRUCTION_SET {

// The maximum of a window and its index: the first among equals, but the last NaN.
template <typename T>
struct Largest {
  T value;
  typename Element<T>::Int index;

  void Consider(T candidate, typename Element<T>::Int candidate_index) {
    const auto wins = (candidate > value) | (candidate != candidate);
    index = wins ? candidate_index : index;
    value = wins ? candidate : value;
  }

  void Relu() {
    index = value <= T{} ? Element<T>::SplatInt(kNoChoice) : index;
    value = ReluFunctor<T>()(value);
  }
};

template <typename T>
MUSTER_ALWAYS_INLINE Largest<T> LargestOf2x2(T a, T b, T c, T d, bool relu) {
  Largest<T> largest{a, Element<T>::SplatInt(0)};
  largest.Consider(b, Element<T>::SplatInt(1));
  largest.Consider(c, Element<T>::SplatInt(2));
  largest.Consider(d, Element<T>::SplatInt(3));
  if (relu) largest.Relu();
  return largest;
}

// Iterates over the 2x2 windows of an NHWC tensor: calls visit(offset of the window's first pixel,
// offset of the pooled pixel), both in elements.
template <typename Visit>
MUSTER_ALWAYS_INLINE void ForEach2x2Window(int64_t samples, int64_t height, int64_t width,
                                           int64_t channels, const Visit& visit) {
  const int64_t out_height = height / 2;
  const int64_t out_width = width / 2;
  int64_t out = 0;
  for (int64_t sample = 0; sample < samples; ++sample) {
    for (int64_t h = 0; h < out_height; ++h) {
      int64_t in = (sample * height + 2 * h) * width * channels;
      for (int64_t w = 0; w < out_width; ++w, in += 2 * channels, out += channels) visit(in, out);
    }
  }
}

// Calls visit(offset) for the first channel of every pixel outside all windows.
template <typename Visit>
MUSTER_ALWAYS_INLINE void ForEachUncovered(int64_t samples, int64_t height, int64_t width,
                                           int64_t channels, const Visit& visit) {
  for (int64_t sample = 0; sample < samples; ++sample) {
    const int64_t base = sample * height * width * channels;
    if (width % 2 != 0) {
      for (int64_t h = 0; h < height; ++h) visit(base + (h * width + width - 1) * channels);
    }
    if (height % 2 != 0) {
      for (int64_t w = 0; w < width / 2 * 2; ++w) {
        visit(base + ((height - 1) * width + w) * channels);
      }
    }
  }
}

}  // namespace muster::kernels::MUSTER_INSTRUCTION_SET

#endif  // MUSTER_KERNELS_CPU_ACTIVATION_NON_OVERLAPPING_POOL_H_
