// Positions of the windows of pooling and convolutions. Compiled once per instruction set.
#ifndef MUSTER_KERNELS_CPU_VECTOR_WINDOWS_H_
#define MUSTER_KERNELS_CPU_VECTOR_WINDOWS_H_

#include <cstdint>

#ifndef MUSTER_INSTRUCTION_SET
#error "define MUSTER_INSTRUCTION_SET before including kernels/cpu/vector/windows.h"
#endif

namespace muster::kernels::MUSTER_INSTRUCTION_SET {

struct Range {
  int64_t begin;
  int64_t end;

  int64_t size() const { return end - begin; }
};

// The windows of pooling or a convolution along the height or the width.
struct Axis {
  int64_t size;
  int64_t kernel;
  int64_t stride;
  int64_t padding;
  int64_t windows;

  Axis(int64_t size, int64_t kernel, int64_t stride, int64_t padding)
      : size(size),
        kernel(kernel),
        stride(stride),
        padding(padding),
        windows((size + 2 * padding - kernel) / stride + 1) {}

  // First pixel of the window, possibly in the padding.
  int64_t Begin(int64_t window) const { return window * stride - padding; }

  Range PixelsOf(int64_t window) const {
    const int64_t begin = Begin(window);
    return {begin > 0 ? begin : 0, begin + kernel < size ? begin + kernel : size};
  }

  // Updates the range of windows over the previous pixel (initially empty) to those over `pixel`.
  void Advance(int64_t pixel, Range& over) const {
    while (over.begin < windows && Begin(over.begin) + kernel <= pixel) ++over.begin;
    while (over.end < windows && Begin(over.end) <= pixel) ++over.end;
  }

  // The windows whose cell with this index is not in the padding.
  Range WindowsWithCell(int64_t cell) const {
    const int64_t before = padding - cell;  // pixels by which the first window's cell precedes 0
    const int64_t last = size - 1 + before;
    const int64_t end = last < 0 ? 0 : last / stride + 1;
    return {before > 0 ? (before - 1) / stride + 1 : 0, end < windows ? end : windows};
  }
};

}  // namespace muster::kernels::MUSTER_INSTRUCTION_SET

#endif  // MUSTER_KERNELS_CPU_VECTOR_WINDOWS_H_
