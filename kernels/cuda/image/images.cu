// Resizes images, and renders them into the transforms of a batch. Each thread computes one pixel.
#include "kernels/cuda/launch/launch.h"
#include "kernels/cuda/launch/windows.h"
#include "kernels/cuda/table/kernels.h"

namespace muster::kernels::MUSTER_INSTRUCTION_SET {
namespace {

// The input pixels along one axis that contribute to an output pixel, and their weights before
// normalisation; see kernels/resize.h.
struct Taps {
  int64_t first;
  int64_t count;
  float distance;  // from the output pixel's centre to that of the first input pixel, signed
  float slope;

  // For output pixel `at`, where [begin, begin + size) of the `in` input pixels is resized to `out`
  // pixels.
  MUSTER_HOST_DEVICE static Taps Of(int64_t in, double begin, double size, int64_t out,
                                    int64_t at) {
    const double step = size / static_cast<double>(out);
    const double support = step > 1 ? step : 1;
    const double centre = begin + (static_cast<double>(at) + 0.5) * step;
    const int64_t first = Max(static_cast<int64_t>(floor(centre - support + 0.5)), 0);
    const int64_t end = Min(static_cast<int64_t>(ceil(centre + support - 0.5)), in);
    return {first, end - first, static_cast<float>(static_cast<double>(first) + 0.5 - centre),
            static_cast<float>(1 / support)};
  }
  MUSTER_HOST_DEVICE float Weight(int64_t tap) const {
    const float weight = 1 - fabsf(distance + static_cast<float>(tap)) * slope;
    return weight > 0 ? weight : 0;
  }
  MUSTER_HOST_DEVICE float WeightSum() const {
    float sum = 0;
    for (int64_t tap = 0; tap < count; ++tap) sum += Weight(tap);
    return sum;
  }
};

// One output pixel of an image. Value returns a channel, rounded to an integer in [0, 255].
struct ResizedPixel {
  const uint8_t* x;  // the image
  int64_t row_bytes;
  int64_t channels;
  Taps rows;
  Taps columns;
  float normaliser;  // 1 / the sum of all weights

  MUSTER_HOST_DEVICE ResizedPixel(const ResizeShape& shape, const uint8_t* image, int64_t row,
                                  int64_t column)
      : x(image),
        row_bytes(shape.row_bytes),
        channels(shape.channels),
        rows(Taps::Of(shape.in_height, shape.top, shape.box_height, shape.height, row)),
        columns(Taps::Of(shape.in_width, shape.left, shape.box_width, shape.width, column)),
        normaliser(1 / (rows.WeightSum() * columns.WeightSum())) {}

  MUSTER_HOST_DEVICE float Value(int64_t channel) const {
    float sum = 0;
    for (int64_t i = 0; i < rows.count; ++i) {
      const float row_weight = rows.Weight(i);
      const uint8_t* from = x + (rows.first + i) * row_bytes + columns.first * channels + channel;
      float row_sum = 0;
      for (int64_t k = 0; k < columns.count; ++k) {
        row_sum += columns.Weight(k) * static_cast<float>(from[k * channels]);
      }
      sum += row_weight * row_sum;
    }
    return floorf(sum * normaliser + 0.5f);
  }
};

struct ResizeBody {
  ResizeShape shape;
  Divider by_width;
  const uint8_t* x;
  uint8_t* y;
  MUSTER_HOST_DEVICE void operator()(int64_t item) const {
    int64_t row = item;
    const int64_t column = by_width.DivMod(row);
    const ResizedPixel pixel(shape, x, row, shape.flip ? shape.width - 1 - column : column);
    for (int64_t c = 0; c < shape.channels; ++c) {
      y[item * shape.channels + c] = static_cast<uint8_t>(pixel.Value(c));
    }
  }
};

struct LoadImagesBody {
  ImageBatchShape shape;
  Divider by_width;
  Divider by_height;
  const uint8_t* x;
  const ImageTransformParams* transforms;
  const float* scale;
  const float* shift;
  float* y;

  MUSTER_HOST_DEVICE void operator()(int64_t item) const {
    int64_t sample = item;
    const int64_t column = by_width.DivMod(sample);
    const int64_t row = by_height.DivMod(sample);
    const ImageTransformParams& params = transforms[sample];
    float* const out = y + item * shape.channels;
    if (row >= params.erased_top && row < params.erased_top + params.erased_height &&
        column >= params.erased_left && column < params.erased_left + params.erased_width) {
      for (int64_t c = 0; c < shape.channels; ++c) out[c] = 0;
      return;
    }
    const int64_t from_row = row + params.dy;
    const int64_t from_column = (params.flip ? shape.width - 1 - column : column) + params.dx;
    if (from_row < 0 || from_row >= shape.height || from_column < 0 || from_column >= shape.width) {
      for (int64_t c = 0; c < shape.channels; ++c) Write(c, 0, out);
      return;
    }
    const uint8_t* const image = x + params.image;
    const auto top = static_cast<int32_t>(params.top);
    const auto left = static_cast<int32_t>(params.left);
    if (params.box_height == static_cast<double>(shape.height) &&
        params.box_width == static_cast<double>(shape.width) && params.top == top &&
        params.left == left) {
      // Not resized: the only weight is 1.
      const uint8_t* const from =
          image + (top + from_row) * params.row_bytes + (left + from_column) * shape.channels;
      for (int64_t c = 0; c < shape.channels; ++c) Write(c, from[c], out);
      return;
    }
    const ResizedPixel pixel(ResizeOf(shape, params), image, from_row, from_column);
    for (int64_t c = 0; c < shape.channels; ++c) Write(c, pixel.Value(c), out);
  }
  MUSTER_HOST_DEVICE void Write(int64_t c, float byte, float* out) const {
    out[c] = AffineFunctor<float>{scale[c], shift[c]}(byte);
  }
};

}  // namespace

void Resize(const ResizeShape& shape, const uint8_t* x, uint8_t* y, void*) {
  ForEachItem(shape.height * shape.width, ResizeBody{shape, Divider(shape.width), x, y});
}

void LoadImages(const ImageBatchShape& shape, const uint8_t* x,
                const ImageTransformParams* transforms, const float* scale, const float* shift,
                float* y) {
  // The stored pixels are those of an image of the batch's size; a crop may have more or fewer.
  const int64_t elements = shape.samples * shape.height * shape.width * shape.channels;
  StateWork(ArrayBytes(DataType::kUint8, elements) + ArrayBytes(DataType::kFloat32, elements));
  ForEachItem(shape.samples * shape.height * shape.width,
              LoadImagesBody{shape, Divider(shape.width), Divider(shape.height), x, transforms,
                             scale, shift, y});
}

}  // namespace muster::kernels::MUSTER_INSTRUCTION_SET
