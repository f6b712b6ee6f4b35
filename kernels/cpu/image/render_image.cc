#include "kernels/cpu/image/render_image.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace muster::kernels::cpu {
namespace {

bool IsWhole(double value) { return value == std::floor(value); }

// Whether no resizing is needed.
bool IsCut(const ImageBatchShape& shape, const ImageTransformParams& params) {
  return params.box_height == static_cast<double>(shape.height) &&
         params.box_width == static_cast<double>(shape.width) && IsWhole(params.top) &&
         IsWhole(params.left);
}

bool IsMoved(const ImageTransformParams& params) { return params.dy != 0 || params.dx != 0; }

// Returns the first pixel of the box.
const uint8_t* BoxOf(const ImageBatchShape& shape, const uint8_t* x,
                     const ImageTransformParams& params) {
  return x + params.image + static_cast<int64_t>(params.top) * params.row_bytes +
         static_cast<int64_t>(params.left) * shape.channels;
}

void ResizeImage(const ImageBatchShape& shape, const uint8_t* x, const ImageTransformParams& params,
                 bool flip, Resize* resize, RenderScratch& scratch, uint8_t* y) {
  ResizeShape resize_shape = ResizeOf(shape, params);
  resize_shape.flip = flip;
  const size_t floats = (ResizeScratchBytes(resize_shape) + sizeof(float) - 1) / sizeof(float);
  if (scratch.resize.size() < floats) scratch.resize.resize(floats);
  resize(resize_shape, x + params.image, y, scratch.resize.data());
}

// Copies `pixels` pixels of `channels` bytes, optionally in reverse order.
void CopyRow(const uint8_t* in, int64_t pixels, int64_t channels, bool flip, uint8_t* out) {
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

// Translates and mirrors `image`, which has the batch's image size, as described by `params`.
void PlaceImage(const ImageBatchShape& shape, const uint8_t* image, int64_t row_bytes,
                const ImageTransformParams& params, uint8_t* out) {
  const int64_t height = shape.height, width = shape.width, channels = shape.channels;
  const int64_t out_bytes = width * channels;
  if (!IsMoved(params) && !params.flip && row_bytes == out_bytes) {
    std::memcpy(out, image, static_cast<size_t>(height * out_bytes));
    return;
  }
  // Columns [begin, end) of the unmirrored result are inside the image.
  const int64_t begin = std::clamp<int64_t>(-params.dx, 0, width);
  const int64_t end = std::clamp<int64_t>(width - params.dx, begin, width);
  const int64_t out_begin = params.flip ? width - end : begin;
  const int64_t out_end = out_begin + (end - begin);
  for (int64_t i = 0; i < height; ++i, out += out_bytes) {
    const int64_t from = i + params.dy;
    if (from < 0 || from >= height || begin == end) {
      std::memset(out, 0, static_cast<size_t>(out_bytes));
      continue;
    }
    std::memset(out, 0, static_cast<size_t>(out_begin * channels));
    CopyRow(image + from * row_bytes + (begin + params.dx) * channels, end - begin, channels,
            params.flip, out + out_begin * channels);
    std::memset(out + out_end * channels, 0, static_cast<size_t>((width - out_end) * channels));
  }
}

}  // namespace

void RenderImage(const ImageBatchShape& shape, const uint8_t* x, const ImageTransformParams& params,
                 Resize* resize, RenderScratch& scratch, uint8_t* y) {
  if (IsCut(shape, params)) {
    PlaceImage(shape, BoxOf(shape, x, params), params.row_bytes, params, y);
  } else if (!IsMoved(params)) {
    ResizeImage(shape, x, params, params.flip, resize, scratch, y);
  } else {
    const int64_t row_bytes = shape.width * shape.channels;
    scratch.resized.resize(static_cast<size_t>(shape.height * row_bytes));
    ResizeImage(shape, x, params, /*flip=*/false, resize, scratch, scratch.resized.data());
    PlaceImage(shape, scratch.resized.data(), row_bytes, params, y);
  }
}

void LoadImages(const ImageBatchShape& shape, const uint8_t* x,
                const ImageTransformParams* transforms, const float* scale, const float* shift,
                Resize* resize, Normalize* normalize, float* y) {
  static thread_local RenderScratch scratch;
  static thread_local std::vector<uint8_t> rendered;
  const int64_t pixels = shape.height * shape.width;
  const int64_t row_bytes = shape.width * shape.channels;
  for (int64_t i = 0; i < shape.samples; ++i, y += pixels * shape.channels) {
    const ImageTransformParams& params = transforms[i];
    const bool as_it_is =
        IsCut(shape, params) && !IsMoved(params) && !params.flip && params.row_bytes == row_bytes;
    const uint8_t* image = BoxOf(shape, x, params);
    if (!as_it_is) {
      rendered.resize(static_cast<size_t>(shape.height * row_bytes));
      RenderImage(shape, x, params, resize, scratch, rendered.data());
      image = rendered.data();
    }
    normalize(pixels, shape.channels, image, scale, shift, y);
    if (params.erased_width == 0) continue;
    for (int64_t k = params.erased_top; k < params.erased_top + params.erased_height; ++k) {
      std::fill_n(y + k * row_bytes + params.erased_left * shape.channels,
                  params.erased_width * shape.channels, 0.0f);
    }
  }
}

}  // namespace muster::kernels::cpu
