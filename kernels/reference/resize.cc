// Resize and LoadImages as defined in kernels/resize.h and kernels/image_transform.h, one output
// value at a time.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/reference/reference_kernels.h"

namespace muster::kernels::reference {
namespace {

// The weight of input pixel n for the output pixel centred at `centre`, before normalisation.
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

void LoadImages(const ImageBatchShape& shape, const uint8_t* x,
                const ImageTransformParams* transforms, const float* scale, const float* shift,
                float* y) {
  const int64_t image_elements = shape.height * shape.width * shape.channels;
  std::vector<uint8_t> resized(image_elements);
  for (int64_t i = 0; i < shape.samples * image_elements; ++i) {
    const ImageTransformParams& params = transforms[i / image_elements];
    if (i % image_elements == 0) {
      Resize(ResizeOf(shape, params), x + params.image, resized.data(), nullptr);
    }
    const int64_t c = i % shape.channels;
    const int64_t column = i / shape.channels % shape.width;
    const int64_t row = i / shape.channels / shape.width % shape.height;
    const int64_t from_row = row + params.dy;
    const int64_t from_column = (params.flip ? shape.width - 1 - column : column) + params.dx;
    const bool inside =
        from_row >= 0 && from_row < shape.height && from_column >= 0 && from_column < shape.width;
    const int64_t from = (from_row * shape.width + from_column) * shape.channels + c;
    const double byte = inside ? resized[from] : 0;
    const bool erased =
        row >= params.erased_top && row < params.erased_top + params.erased_height &&
        column >= params.erased_left && column < params.erased_left + params.erased_width;
    y[i] = erased ? 0 : static_cast<float>(byte * double{scale[c]} + double{shift[c]});
  }
}

}  // namespace muster::kernels::reference
