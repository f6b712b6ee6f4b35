// From stored images to a network's input: each row of a batch a part of an image, resized, moved,
// mirrored, normalised, and with a rectangle erased.
#ifndef MUSTER_KERNELS_IMAGE_ROWS_H_
#define MUSTER_KERNELS_IMAGE_ROWS_H_

#include <cstdint>

#include "kernels/host_device.h"
#include "kernels/resize.h"

namespace muster::kernels {

struct ImageRowsShape {
  int64_t rows = 0;
  int64_t height = 0;  // of each row
  int64_t width = 0;
  int64_t channels = 0;  // of rows and images
};

// What one row is made of. In this order: the box of the image becomes height x width, as resize.h
// says, rounded to bytes; pixel (i, j) of that is then pixel (i + dy, j + dx), bytes of zero where
// there is none; that is mirrored; and, once it is normalised, zero in the erased rectangle.
struct ImageRow {
  int64_t image = 0;       // bytes from the start of all images to this one
  int64_t line_bytes = 0;  // from one of its lines to the next
  int32_t in_height = 0;
  int32_t in_width = 0;
  // The box, in pixels of the image, which holds it; of a positive size.
  double top = 0;
  double left = 0;
  double box_height = 0;
  double box_width = 0;
  int32_t dy = 0;
  int32_t dx = 0;
  bool flip = false;
  // Empty where its height or width is 0.
  int32_t erased_top = 0;
  int32_t erased_left = 0;
  int32_t erased_height = 0;
  int32_t erased_width = 0;
};

// x: the bytes that the rows' images lie in; rows [shape.rows]; scale, shift float32 [channels] ->
// y float32 [rows, height, width, channels], a byte b of channel c as b * scale[c] + shift[c]. For
// (b / 255 - mean) / deviation: scale = 1 / (255 * deviation), shift = -mean / deviation. y's rows
// need no alignment.
using LoadImages = void(const ImageRowsShape& shape, const uint8_t* x, const ImageRow* rows,
                        const float* scale, const float* shift, float* y);

// The row that an image of the rows' own size makes as it is.
inline ImageRow WholeImage(const ImageRowsShape& shape, int64_t image) {
  ImageRow row;
  row.image = image;
  row.line_bytes = shape.width * shape.channels;
  row.in_height = static_cast<int32_t>(shape.height);
  row.in_width = static_cast<int32_t>(shape.width);
  row.box_height = static_cast<double>(shape.height);
  row.box_width = static_cast<double>(shape.width);
  return row;
}

// A row's first part, unmirrored.
MUSTER_HOST_DEVICE inline ResizeShape ResizeOf(const ImageRowsShape& shape, const ImageRow& row) {
  ResizeShape resize;
  resize.in_height = row.in_height;
  resize.in_width = row.in_width;
  resize.channels = shape.channels;
  resize.row_bytes = row.line_bytes;
  resize.top = row.top;
  resize.left = row.left;
  resize.box_height = row.box_height;
  resize.box_width = row.box_width;
  resize.height = shape.height;
  resize.width = shape.width;
  return resize;
}

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_IMAGE_ROWS_H_
