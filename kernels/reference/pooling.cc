#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/half.h"
#include "kernels/reference/reference_kernels.h"

namespace muster::kernels::reference {
namespace {

// Calls visit(index in x, index within the window) for each cell of the window of element `out` of
// y, except those in the padding.
template <typename Visit>
void ForEachCell(const PoolShape& shape, int64_t out, const Visit& visit) {
  const int64_t c = out % shape.channels;
  const int64_t w = out / shape.channels % shape.out_width();
  const int64_t h = out / shape.channels / shape.out_width() % shape.out_height();
  const int64_t sample = out / shape.channels / shape.out_width() / shape.out_height();
  for (int64_t cell = 0; cell < shape.kernel * shape.kernel; ++cell) {
    const int64_t in_h = h * shape.stride - shape.padding + cell / shape.kernel;
    const int64_t in_w = w * shape.stride - shape.padding + cell % shape.kernel;
    if (in_h < 0 || in_h >= shape.height || in_w < 0 || in_w >= shape.width) continue;
    visit(((sample * shape.height + in_h) * shape.width + in_w) * shape.channels + c, cell);
  }
}

template <typename Visit>
void ForEachCell(const AveragePoolShape& shape, int64_t out, const Visit& visit) {
  const int64_t c = out % shape.channels;
  const int64_t w = out / shape.channels % shape.out_width();
  const int64_t h = out / shape.channels / shape.out_width() % shape.out_height();
  const int64_t sample = out / shape.channels / shape.out_width() / shape.out_height();
  for (int64_t r = 0; r < shape.kernel_height; ++r) {
    for (int64_t s = 0; s < shape.kernel_width; ++s) {
      const int64_t in_h = h * shape.stride + r;
      const int64_t in_w = w * shape.stride + s;
      visit(((sample * shape.height + in_h) * shape.width + in_w) * shape.channels + c);
    }
  }
}

template <typename Shape>
int64_t InputElements(const Shape& shape) {
  return shape.samples * shape.height * shape.width * shape.channels;
}

template <typename Shape>
int64_t OutputElements(const Shape& shape) {
  return shape.samples * shape.out_height() * shape.out_width() * shape.channels;
}

void Store(DataType type, const std::vector<double>& values, void* array) {
  for (size_t i = 0; i < values.size(); ++i) StoreElement(type, values[i], array, i);
}

}  // namespace

void MaxPoolForward(const PoolShape& shape, const void* x, void* y, uint8_t* choice) {
  for (int64_t out = 0; out < OutputElements(shape); ++out) {
    float largest = 0;
    int64_t chosen = -1;
    ForEachCell(shape, out, [&](int64_t in, int64_t cell) {
      const float candidate = LoadElement(shape.type, x, in);
      if (chosen >= 0 && !(candidate > largest) && !std::isnan(candidate)) return;
      largest = candidate;
      chosen = cell;
    });
    const bool dead = shape.relu && largest <= 0;
    StoreElement(shape.type, dead ? 0.0f : largest, y, out);
    if (choice != nullptr) choice[out] = dead ? kNoChoice : static_cast<uint8_t>(chosen);
  }
}

void MaxPoolBackward(const PoolShape& shape, const void* dy, const uint8_t* choice, void* dx) {
  std::vector<double> sums(InputElements(shape), 0.0);
  for (int64_t out = 0; out < OutputElements(shape); ++out) {
    ForEachCell(shape, out, [&](int64_t in, int64_t cell) {
      if (cell == choice[out]) sums[in] += LoadElement(shape.type, dy, out);
    });
  }
  Store(shape.type, sums, dx);
}

void AveragePoolForward(const AveragePoolShape& shape, const void* x, void* y) {
  const double cells = static_cast<double>(shape.kernel_height * shape.kernel_width);
  for (int64_t out = 0; out < OutputElements(shape); ++out) {
    double sum = 0;
    ForEachCell(shape, out, [&](int64_t in) { sum += LoadElement(shape.type, x, in); });
    StoreElement(shape.type, sum / cells, y, out);
  }
}

void AveragePoolBackward(const AveragePoolShape& shape, const void* dy, void* dx) {
  const double cells = static_cast<double>(shape.kernel_height * shape.kernel_width);
  std::vector<double> sums(InputElements(shape), 0.0);
  for (int64_t out = 0; out < OutputElements(shape); ++out) {
    ForEachCell(shape, out,
                [&](int64_t in) { sums[in] += LoadElement(shape.type, dy, out) / cells; });
  }
  Store(shape.type, sums, dx);
}

}  // namespace muster::kernels::reference
