// Images resized, and made into the rows of a batch. A thread makes a pixel.
#include "kernels/cuda/launch/launch.h"
#include "kernels/cuda/table/kernels.h"

namespace muster::kernels::MUSTER_INSTRUCTION_SET {
namespace {

// The input pixels along one axis that an output pixel is made of, and their weights before they
// are made to add up to 1; see kernels/resize.h.
struct Taps {
  int64_t first;
  int64_t count;
  float distance;  // of the first one's centre from the output pixel's, signed
  float slope;

  // Of `in` pixels those of [begin, begin + size) become `out`; this is for pixel `at` of these.
  MUSTER_HOST_DEVICE static Taps Of(int64_t in, double begin, double size, int64_t out,
                                    int64_t at) {
    const double step = size / static_cast<double>(out);
    const double support = step > 1 ? step : 1;
    const double centre = begin + (static_cast<double>(at) + 0.5) * step;
    const int64_t first = Larger(static_cast<int64_t>(floor(centre - support + 0.5)), 0);
    const int64_t end = Smaller(static_cast<int64_t>(ceil(centre + support - 0.5)), in);
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

// One output pixel of an image, channel by channel, rounded to a byte's value.
struct ResizedPixel {
  const uint8_t* x;  // the image
  int64_t line_bytes;
  int64_t channels;
  Taps lines;
  Taps columns;
  float share;  // what makes all weights add up to 1

  MUSTER_HOST_DEVICE ResizedPixel(const ResizeShape& shape, const uint8_t* image, int64_t line,
                                  int64_t column)
      : x(image),
        line_bytes(shape.row_bytes),
        channels(shape.channels),
        lines(Taps::Of(shape.in_height, shape.top, shape.box_height, shape.height, line)),
        columns(Taps::Of(shape.in_width, shape.left, shape.box_width, shape.width, column)),
        share(1 / (lines.WeightSum() * columns.WeightSum())) {}

  MUSTER_HOST_DEVICE float Value(int64_t channel) const {
    float sum = 0;
    for (int64_t i = 0; i < lines.count; ++i) {
      const float line_weight = lines.Weight(i);
      const uint8_t* from = x + (lines.first + i) * line_bytes + columns.first * channels + channel;
      float line_sum = 0;
      for (int64_t k = 0; k < columns.count; ++k) {
        line_sum += columns.Weight(k) * static_cast<float>(from[k * channels]);
      }
      sum += line_weight * line_sum;
    }
    return floorf(sum * share + 0.5f);
  }
};

struct ResizeBody {
  ResizeShape shape;
  const uint8_t* x;
  uint8_t* y;
  MUSTER_HOST_DEVICE void operator()(int64_t item) const {
    const int64_t column = item % shape.width;
    const ResizedPixel pixel(shape, x, item / shape.width,
                             shape.flip ? shape.width - 1 - column : column);
    for (int64_t c = 0; c < shape.channels; ++c) {
      y[item * shape.channels + c] = static_cast<uint8_t>(pixel.Value(c));
    }
  }
};

struct LoadImagesBody {
  ImageRowsShape shape;
  const uint8_t* x;
  const ImageRow* rows;
  const float* scale;
  const float* shift;
  float* y;

  MUSTER_HOST_DEVICE void operator()(int64_t item) const {
    const int64_t column = item % shape.width;
    const int64_t line = item / shape.width % shape.height;
    const ImageRow& row = rows[item / shape.width / shape.height];
    float* const out = y + item * shape.channels;
    if (line >= row.erased_top && line < row.erased_top + row.erased_height &&
        column >= row.erased_left && column < row.erased_left + row.erased_width) {
      for (int64_t c = 0; c < shape.channels; ++c) out[c] = 0;
      return;
    }
    const int64_t from_line = line + row.dy;
    const int64_t from_column = (row.flip ? shape.width - 1 - column : column) + row.dx;
    if (from_line < 0 || from_line >= shape.height || from_column < 0 ||
        from_column >= shape.width) {
      for (int64_t c = 0; c < shape.channels; ++c) Write(c, 0, out);
      return;
    }
    const ResizedPixel pixel(ResizeOf(shape, row), x + row.image, from_line, from_column);
    for (int64_t c = 0; c < shape.channels; ++c) Write(c, pixel.Value(c), out);
  }
  MUSTER_HOST_DEVICE void Write(int64_t c, float byte, float* out) const {
    out[c] = AffineFunctor<float>{scale[c], shift[c]}(byte);
  }
};

}  // namespace

void Resize(const ResizeShape& shape, const uint8_t* x, uint8_t* y, void*) {
  ForEachItem(shape.height * shape.width, ResizeBody{shape, x, y});
}

void LoadImages(const ImageRowsShape& shape, const uint8_t* x, const ImageRow* rows,
                const float* scale, const float* shift, float* y) {
  ForEachItem(shape.rows * shape.height * shape.width,
              LoadImagesBody{shape, x, rows, scale, shift, y});
}

}  // namespace muster::kernels::MUSTER_INSTRUCTION_SET
