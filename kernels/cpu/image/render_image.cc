#include "kernels/cpu/image/render_image.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace muster::kernels::cpu {
namespace {

bool IsWhole(double value) { return value == std::floor(value); }

// Whether no resizing is needed.
bool IsCut(const ImageRowsShape& shape, const ImageRow& row) {
  return row.box_height == static_cast<double>(shape.height) &&
         row.box_width == static_cast<double>(shape.width) && IsWhole(row.top) && IsWhole(row.left);
}

bool IsMoved(const ImageRow& row) { return row.dy != 0 || row.dx != 0; }

// Returns the first pixel of the box.
const uint8_t* BoxOf(const ImageRowsShape& shape, const uint8_t* x, const ImageRow& row) {
  return x + row.image + static_cast<int64_t>(row.top) * row.line_bytes +
         static_cast<int64_t>(row.left) * shape.channels;
}

void ResizeImage(const ImageRowsShape& shape, const uint8_t* x, const ImageRow& row, bool flip,
                 Resize* resize, RenderScratch& scratch, uint8_t* y) {
  ResizeShape resize_shape = ResizeOf(shape, row);
  resize_shape.flip = flip;
  const size_t floats = (ResizeScratchBytes(resize_shape) + sizeof(float) - 1) / sizeof(float);
  if (scratch.resize.size() < floats) scratch.resize.resize(floats);
  resize(resize_shape, x + row.image, y, scratch.resize.data());
}

// Copies `pixels` pixels of `channels` bytes, optionally in reverse order.
void CopyLine(const uint8_t* in, int64_t pixels, int64_t channels, bool flip, uint8_t* out) {
  if (!flip) {
    std::memcpy(out, in, static_cast<size_t>(pixels * channels));
    return;
  }
  if (channels == 1) {
    std::reverse_copy(in, in + pixels, out);
    return;
  }
  for (int64_t i = 0; i < pixels; ++i) {
    std::memcpy(out + i * channels, in + (pixels - 1 - i) * channels,
                static_cast<size_t>(channels));
  }
}

// Translates and mirrors `image`, which has the batch's image size, as described by the row.
void PlaceImage(const ImageRowsShape& shape, const uint8_t* image, int64_t line_bytes,
                const ImageRow& row, uint8_t* out) {
  const int64_t height = shape.height, width = shape.width, channels = shape.channels;
  const int64_t out_bytes = width * channels;
  if (!IsMoved(row) && !row.flip && line_bytes == out_bytes) {
    std::memcpy(out, image, static_cast<size_t>(height * out_bytes));
    return;
  }
  // Columns [begin, end) of the unmirrored result are inside the image.
  const int64_t begin = std::clamp<int64_t>(-row.dx, 0, width);
  const int64_t end = std::clamp<int64_t>(width - row.dx, begin, width);
  const int64_t out_begin = row.flip ? width - end : begin;
  const int64_t out_end = out_begin + (end - begin);
  for (int64_t i = 0; i < height; ++i, out += out_bytes) {
    const int64_t from = i + row.dy;
    if (from < 0 || from >= height || begin == end) {
      std::memset(out, 0, static_cast<size_t>(out_bytes));
      continue;
    }
    std::memset(out, 0, static_cast<size_t>(out_begin * channels));
    CopyLine(image + from * line_bytes + (begin + row.dx) * channels, end - begin, channels,
             row.flip, out + out_begin * channels);
    std::memset(out + out_end * channels, 0, static_cast<size_t>((width - out_end) * channels));
  }
}

}  // namespace

void RenderImage(const ImageRowsShape& shape, const uint8_t* x, const ImageRow& row, Resize* resize,
                 RenderScratch& scratch, uint8_t* y) {
  if (IsCut(shape, row)) {
    PlaceImage(shape, BoxOf(shape, x, row), row.line_bytes, row, y);
  } else if (!IsMoved(row)) {
    ResizeImage(shape, x, row, row.flip, resize, scratch, y);
  } else {
    const int64_t line_bytes = shape.width * shape.channels;
    scratch.resized.resize(static_cast<size_t>(shape.height * line_bytes));
    ResizeImage(shape, x, row, /*flip=*/false, resize, scratch, scratch.resized.data());
    PlaceImage(shape, scratch.resized.data(), line_bytes, row, y);
  }
}

void LoadImages(const ImageRowsShape& shape, const uint8_t* x, const ImageRow* rows,
                const float* scale, const float* shift, Resize* resize, Normalize* normalize,
                float* y) {
  static thread_local RenderScratch scratch;
  static thread_local std::vector<uint8_t> rendered;
  const int64_t pixels = shape.height * shape.width;
  const int64_t line = shape.width * shape.channels;
  for (int64_t i = 0; i < shape.rows; ++i, y += pixels * shape.channels) {
    const ImageRow& row = rows[i];
    const bool as_it_is = IsCut(shape, row) && !IsMoved(row) && !row.flip && row.line_bytes == line;
    const uint8_t* image = BoxOf(shape, x, row);
    if (!as_it_is) {
      rendered.resize(static_cast<size_t>(shape.height * line));
      RenderImage(shape, x, row, resize, scratch, rendered.data());
      image = rendered.data();
    }
    normalize(pixels, shape.channels, image, scale, shift, y);
    if (row.erased_width == 0) continue;
    for (int64_t k = row.erased_top; k < row.erased_top + row.erased_height; ++k) {
      std::fill_n(y + k * line + row.erased_left * shape.channels,
                  row.erased_width * shape.channels, 0.0f);
    }
  }
}

}  // namespace muster::kernels::cpu
