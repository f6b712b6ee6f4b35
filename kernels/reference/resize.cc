// Resize as kernels/resize.h defines it, one output value at a time.
#include <algorithm>
#include <cmath>

#include "kernels/reference/reference_kernels.h"

namespace muster::kernels::reference {
namespace {

// The weight of input pixel n for the output pixel centred at `centre`, not yet divided by their
// sum.
double Weight(int64_t n, double centre, double support) {
  return std::max(0.0, 1 - std::abs(static_cast<double>(n) + 0.5 - centre) / support);
}

}  // namespace

void Resize(const ResizeShape& shape, const uint8_t* x, uint8_t* y, void*) {
  const double step_y = shape.box_height / static_cast<double>(shape.height);
  const double step_x = shape.box_width / static_cast<double>(shape.width);
  for (int64_t i = 0; i < shape.height * shape.width * shape.channels; ++i) {
    const int64_t c = i % shape.channels;
    const int64_t column = i / shape.channels % shape.width;
    const int64_t from_column = shape.flip ? shape.width - 1 - column : column;
    const int64_t row = i / shape.channels / shape.width;
    const double centre_y = shape.top + (static_cast<double>(row) + 0.5) * step_y;
    const double centre_x = shape.left + (static_cast<double>(from_column) + 0.5) * step_x;
    double sum = 0;
    double weights = 0;
    for (int64_t h = 0; h < shape.in_height; ++h) {
      const double weight_y = Weight(h, centre_y, std::max(1.0, step_y));
      if (weight_y == 0) continue;
      for (int64_t w = 0; w < shape.in_width; ++w) {
        const double weight = weight_y * Weight(w, centre_x, std::max(1.0, step_x));
        sum += weight * x[h * shape.row_bytes + w * shape.channels + c];
        weights += weight;
      }
    }
    y[i] = static_cast<uint8_t>(std::floor(sum / weights + 0.5));
  }
}

}  // namespace muster::kernels::reference
