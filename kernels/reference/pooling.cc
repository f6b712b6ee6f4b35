#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/reference/reference_kernels.h"

namespace muster::kernels::reference {
namespace {

// Calls visit(element of x, index within the window) for each cell of the window that gives element
// `out` of y, but those in the padding.
template <typename Visit>
void ForEachCell(const PoolShape& shape, int64_t out, const Visit& visit) {
  const int64_t c = out % shape.channels;
  const int64_t w = out / shape.channels % shape.out_width();
  const int64_t h = out / shape.channels / shape.out_width() % shape.out_height();
  const int64_t row = out / shape.channels / shape.out_width() / shape.out_height();
  for (int64_t cell = 0; cell < shape.kernel * shape.kernel; ++cell) {
    const int64_t in_h = h * shape.stride - shape.padding + cell / shape.kernel;
    const int64_t in_w = w * shape.stride - shape.padding + cell % shape.kernel;
    if (in_h < 0 || in_h >= shape.height || in_w < 0 || in_w >= shape.width) continue;
    visit(((row * shape.height + in_h) * shape.width + in_w) * shape.channels + c, cell);
  }
}

template <typename Visit>
void ForEachCell(const AveragePoolShape& shape, int64_t out, const Visit& visit) {
  const int64_t c = out % shape.channels;
  const int64_t w = out / shape.channels % shape.out_width();
  const int64_t h = out / shape.channels / shape.out_width() % shape.out_height();
  const int64_t row = out / shape.channels / shape.out_width() / shape.out_height();
  for (int64_t r = 0; r < shape.kernel_height; ++r) {
    for (int64_t s = 0; s < shape.kernel_width; ++s) {
      const int64_t in_h = h * shape.stride + r;
      const int64_t in_w = w * shape.stride + s;
      visit(((row * shape.height + in_h) * shape.width + in_w) * shape.channels + c);
    }
  }
}

template <typename Shape>
int64_t InputElements(const Shape& shape) {
  return shape.rows * shape.height * shape.width * shape.channels;
}

template <typename Shape>
int64_t OutputElements(const Shape& shape) {
  return shape.rows * shape.out_height() * shape.out_width() * shape.channels;
}

}  // namespace

void MaxPoolForward(const PoolShape& shape, const float* x, float* y, uint8_t* choice) {
  for (int64_t out = 0; out < OutputElements(shape); ++out) {
    float largest = 0;
    int64_t chosen = -1;
    ForEachCell(shape, out, [&](int64_t in, int64_t cell) {
      if (chosen >= 0 && !(x[in] > largest) && !std::isnan(x[in])) return;
      largest = x[in];
      chosen = cell;
    });
    const bool dead = shape.relu && largest <= 0;
    y[out] = dead ? 0.0f : largest;
    if (choice != nullptr) choice[out] = dead ? kNoChoice : static_cast<uint8_t>(chosen);
  }
}

void MaxPoolBackward(const PoolShape& shape, const float* dy, const uint8_t* choice, float* dx) {
  std::vector<double> sums(InputElements(shape), 0.0);
  for (int64_t out = 0; out < OutputElements(shape); ++out) {
    ForEachCell(shape, out, [&](int64_t in, int64_t cell) {
      if (cell == choice[out]) sums[in] += dy[out];
    });
  }
  std::copy(sums.begin(), sums.end(), dx);
}

void AveragePoolForward(const AveragePoolShape& shape, const float* x, float* y) {
  const double cells = static_cast<double>(shape.kernel_height * shape.kernel_width);
  for (int64_t out = 0; out < OutputElements(shape); ++out) {
    double sum = 0;
    ForEachCell(shape, out, [&](int64_t in) { sum += x[in]; });
    y[out] = static_cast<float>(sum / cells);
  }
}

void AveragePoolBackward(const AveragePoolShape& shape, const float* dy, float* dx) {
  const double cells = static_cast<double>(shape.kernel_height * shape.kernel_width);
  std::vector<double> sums(InputElements(shape), 0.0);
  for (int64_t out = 0; out < OutputElements(shape); ++out) {
    ForEachCell(shape, out, [&](int64_t in) { sums[in] += dy[out] / cells; });
  }
  std::copy(sums.begin(), sums.end(), dx);
}

}  // namespace muster::kernels::reference
