// Resizes a region of an image.
#ifndef MUSTER_KERNELS_RESIZE_H_
#define MUSTER_KERNELS_RESIZE_H_

#include <cstddef>
#include <cstdint>

namespace muster::kernels {

// Resizes a box of a uint8 [in_height, in_width, channels] image, whose rows are row_bytes apart,
// to contiguous uint8 [height, width, channels], optionally mirrored left to right.
//
// Bilinear with half-pixel centres, like Pillow's Image.resize(size, BILINEAR, box=...): output
// pixel i is centred at c = begin + (i + 0.5) * s with s = box size / output size. The weights of
// the input pixels around c decrease linearly to zero at a distance of max(1, s), so that every
// pixel of a downscaled image contributes. Pixels outside the box contribute if they are inside the
// image; the weights are normalised to sum 1. Within 1 of Pillow, which rounds intermediate values.
struct ResizeShape {
  int64_t in_height = 0;
  int64_t in_width = 0;
  int64_t channels = 0;
  int64_t row_bytes = 0;
  // The box, in pixels of the image, within it and not empty.
  double top = 0;
  double left = 0;
  double box_height = 0;
  double box_width = 0;
  int64_t height = 0;
  int64_t width = 0;
  bool flip = false;
};

// Bytes of working memory for Resize.
size_t ResizeScratchBytes(const ResizeShape& shape);

// `scratch` has ResizeScratchBytes(shape) bytes and is aligned for floats.
using Resize = void(const ResizeShape& shape, const uint8_t* x, uint8_t* y, void* scratch);

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_RESIZE_H_
