// Which input pixels an output pixel of kernels/resize.h is made of, along one axis.
#ifndef MUSTER_KERNELS_CPU_IMAGE_RESIZE_FILTER_H_
#define MUSTER_KERNELS_CPU_IMAGE_RESIZE_FILTER_H_

#include <cstdint>

#include "kernels/resize.h"

namespace muster::kernels::cpu {

// Output i is the sum over t < taps of weights[i * taps + t] * input[first[i] + t]. All of these
// are pixels of the axis; where fewer than `taps` count, the others weigh zero.
struct ResizeFilter {
  int64_t taps = 0;
  int32_t* first = nullptr;  // [out]
  float* weights = nullptr;  // [out, taps]
};

// A resize's working memory, taken apart.
struct ResizeScratch {
  ResizeFilter vertical;
  ResizeFilter horizontal;  // gives the last output first where the image is mirrored
  float* lines = nullptr;   // kResizeLines * in_width * channels, and kResizeMargin more
};

// Output lines that are computed together.
inline constexpr int64_t kResizeLines = 4;
// Floats that may be read past the end of the lines.
inline constexpr int64_t kResizeMargin = 1;

// Computes both filters.
ResizeScratch PrepareResize(const ResizeShape& shape, void* scratch);

}  // namespace muster::kernels::cpu

#endif  // MUSTER_KERNELS_CPU_IMAGE_RESIZE_FILTER_H_
