// A part of an image at another size.
#ifndef MUSTER_KERNELS_RESIZE_H_
#define MUSTER_KERNELS_RESIZE_H_

#include <cstddef>
#include <cstdint>

namespace muster::kernels {

// A box of a uint8 [in_height, in_width, channels] image, whose lines begin row_bytes apart,
// becomes uint8 [height, width, channels] without gaps; mirrored from left to right if asked for.
//
// Bilinear with half-pixel centres, as Pillow's Image.resize(size, BILINEAR, box=...): output pixel
// i is centred at c = begin + (i + 0.5) * s with s = box size / output size, and takes the input
// pixels around c with weights falling linearly to zero at a distance of max(1, s), so that every
// pixel of a picture made smaller counts. Pixels outside the box but inside the image count, others
// do not; the weights are made to add up to 1. Within 1 of Pillow, which rounds in between.
struct ResizeShape {
  int64_t in_height = 0;
  int64_t in_width = 0;
  int64_t channels = 0;
  int64_t row_bytes = 0;
  // The box, in pixels of the image, which holds it; of a positive size.
  double top = 0;
  double left = 0;
  double box_height = 0;
  double box_width = 0;
  int64_t height = 0;
  int64_t width = 0;
  bool flip = false;
};

// Of working memory for Resize.
size_t ResizeScratchBytes(const ResizeShape& shape);

// `scratch` holds ResizeScratchBytes(shape) and is aligned for floats.
using Resize = void(const ResizeShape& shape, const uint8_t* x, uint8_t* y, void* scratch);

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_RESIZE_H_
