// Transforms stored images to a network's input: each image of the batch is a crop of a stored
// image, resized, translated, mirrored and normalised, with a rectangle erased.
#ifndef MUSTER_KERNELS_IMAGE_TRANSFORM_H_
#define MUSTER_KERNELS_IMAGE_TRANSFORM_H_

#include <cstdint>

#include "kernels/host_device.h"
#include "kernels/resize.h"

namespace muster::kernels {

struct ImageBatchShape {
  int64_t samples = 0;
  int64_t height = 0;  // height of each image
  int64_t width = 0;
  int64_t channels = 0;  // channels of the images, including stored ones
};

// Describes one image of the batch. The operations in order: the box of the stored image is resized
// to height x width as in resize.h, rounded to bytes; pixel (i, j) becomes pixel (i + dy, j + dx)
// of that, or zero bytes outside it; the image is mirrored; after normalisation, the erased
// rectangle is set to zero.
struct ImageTransformParams {
  int64_t image = 0;      // offset of the stored image in bytes
  int64_t row_bytes = 0;  // distance between the starts of adjacent rows of the stored image
  int32_t in_height = 0;
  int32_t in_width = 0;
  // The box, in pixels of the stored image, within it and not empty.
  double top = 0;
  double left = 0;
  double box_height = 0;
  double box_width = 0;
  int32_t dy = 0;
  int32_t dx = 0;
  bool flip = false;
  // Empty if its height or width is 0.
  int32_t erased_top = 0;
  int32_t erased_left = 0;
  int32_t erased_height = 0;
  int32_t erased_width = 0;
};

// x: the bytes of the stored images; params [samples]; scale, shift float32 [channels] -> y float32
// [samples, height, width, channels]: a byte b of channel c becomes b * scale[c] + shift[c].
// For (b / 255 - mean) / deviation: scale = 1 / (255 * deviation), shift = -mean / deviation.
// Images in y need no alignment.
using LoadImages = void(const ImageBatchShape& shape, const uint8_t* x,
                        const ImageTransformParams* params, const float* scale, const float* shift,
                        float* y);

// Describes a stored image of the batch's image size, unchanged.
inline ImageTransformParams WholeImage(const ImageBatchShape& shape, int64_t image) {
  ImageTransformParams params;
  params.image = image;
  params.row_bytes = shape.width * shape.channels;
  params.in_height = static_cast<int32_t>(shape.height);
  params.in_width = static_cast<int32_t>(shape.width);
  params.box_height = static_cast<double>(shape.height);
  params.box_width = static_cast<double>(shape.width);
  return params;
}

// The resize of an image, without mirroring.
MUSTER_HOST_DEVICE inline ResizeShape ResizeOf(const ImageBatchShape& shape,
                                               const ImageTransformParams& params) {
  ResizeShape resize;
  resize.in_height = params.in_height;
  resize.in_width = params.in_width;
  resize.channels = shape.channels;
  resize.row_bytes = params.row_bytes;
  resize.top = params.top;
  resize.left = params.left;
  resize.box_height = params.box_height;
  resize.box_width = params.box_width;
  resize.height = shape.height;
  resize.width = shape.width;
  return resize;
}

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_IMAGE_TRANSFORM_H_
