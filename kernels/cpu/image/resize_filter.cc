#include "kernels/cpu/image/resize_filter.h"

#include <algorithm>
#include <cmath>

namespace muster::kernels {
namespace cpu {
namespace {

// Resizes the range [begin, begin + size) of `in` pixels to `out` pixels.
struct Axis {
  int64_t in = 0;
  double begin = 0;
  double size = 0;
  int64_t out = 0;
};

Axis VerticalAxis(const ResizeShape& shape) {
  return {shape.in_height, shape.top, shape.box_height, shape.height};
}

Axis HorizontalAxis(const ResizeShape& shape) {
  return {shape.in_width, shape.left, shape.box_width, shape.width};
}

// Distance from its centre up to which input pixels contribute to an output pixel.
double Support(const Axis& axis) {
  return std::max(1.0, axis.size / static_cast<double>(axis.out));
}

// Maximum number of pixel centres in an open interval of twice the support.
int64_t Taps(const Axis& axis) {
  return std::min(axis.in, static_cast<int64_t>(std::ceil(2 * Support(axis))));
}

void FillFilter(const Axis& axis, bool reverse, const ResizeFilter& filter) {
  const double step = axis.size / static_cast<double>(axis.out);
  const double support = Support(axis);
  const double slope = 1 / support;
  for (int64_t i = 0; i < axis.out; ++i) {
    const int64_t output = reverse ? axis.out - 1 - i : i;
    const double centre = axis.begin + (static_cast<double>(output) + 0.5) * step;
    const int64_t first = std::clamp<int64_t>(
        static_cast<int64_t>(std::floor(centre - support + 0.5)), 0, axis.in - filter.taps);
    float* weights = filter.weights + i * filter.taps;
    double sum = 0;
    for (int64_t t = 0; t < filter.taps; ++t) {
      const double distance = std::abs(static_cast<double>(first + t) + 0.5 - centre);
      const double weight = std::max(0.0, 1 - distance * slope);
      weights[t] = static_cast<float>(weight);
      sum += weight;
    }
    const auto share = static_cast<float>(1 / sum);
    for (int64_t t = 0; t < filter.taps; ++t) weights[t] *= share;
    filter.first[i] = static_cast<int32_t>(first);
  }
}

}  // namespace

ResizeScratch PrepareResize(const ResizeShape& shape, void* scratch) {
  const Axis rows = VerticalAxis(shape), columns = HorizontalAxis(shape);
  ResizeScratch parts;
  parts.vertical.taps = Taps(rows);
  parts.horizontal.taps = Taps(columns);
  parts.vertical.first = static_cast<int32_t*>(scratch);
  parts.horizontal.first = parts.vertical.first + rows.out;
  parts.vertical.weights = reinterpret_cast<float*>(parts.horizontal.first + columns.out);
  parts.horizontal.weights = parts.vertical.weights + rows.out * parts.vertical.taps;
  parts.rows = parts.horizontal.weights + columns.out * parts.horizontal.taps;
  FillFilter(rows, /*reverse=*/false, parts.vertical);
  FillFilter(columns, shape.flip, parts.horizontal);
  return parts;
}

}  // namespace cpu

size_t ResizeScratchBytes(const ResizeShape& shape) {
  const cpu::Axis rows = cpu::VerticalAxis(shape), columns = cpu::HorizontalAxis(shape);
  const int64_t filters = rows.out * (1 + cpu::Taps(rows)) + columns.out * (1 + cpu::Taps(columns));
  const int64_t row_floats =
      cpu::kResizeRows * shape.in_width * shape.channels + cpu::kResizeMargin;
  static_assert(sizeof(int32_t) == sizeof(float));
  return static_cast<size_t>(filters + row_floats) * sizeof(float);
}

}  // namespace muster::kernels
