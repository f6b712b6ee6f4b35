// The filter of kernels/resize.h along one axis: the input pixels that contribute to each output.
#ifndef MUSTER_KERNELS_CPU_IMAGE_RESIZE_FILTER_H_
#define MUSTER_KERNELS_CPU_IMAGE_RESIZE_FILTER_H_

#include <cstdint>

#include "kernels/resize.h"

namespace muster::kernels::cpu {

// Output i is the sum over t < taps of weights[i * taps + t] * input[first[i] + t]. All of these
// are valid pixels; if fewer than `taps` contribute, the other weights are zero.
struct ResizeFilter {
  int64_t taps = 0;
  int32_t* first = nullptr;  // [out]
  float* weights = nullptr;  // [out, taps]
};

// The arrays within a resize's scratch memory.
struct ResizeScratch {
  ResizeFilter vertical;
  ResizeFilter horizontal;  // in reverse order of outputs for a mirrored image
  float* rows = nullptr;    // kResizeRows * in_width * channels floats, plus kResizeMargin
};

// Output rows that are computed together.
inline constexpr int64_t kResizeRows = 4;
// Floats that may be read past the end of `rows`.
inline constexpr int64_t kResizeMargin = 1;

// Computes both filters.
ResizeScratch PrepareResize(const ResizeShape& shape, void* scratch);

}  // namespace muster::kernels::cpu

#endif  // MUSTER_KERNELS_CPU_IMAGE_RESIZE_FILTER_H_
