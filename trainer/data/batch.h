// What a loader hands to a training step.
#ifndef MUSTER_TRAINER_DATA_BATCH_H_
#define MUSTER_TRAINER_DATA_BATCH_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "kernels/device.h"
#include "kernels/image_rows.h"
#include "trainer/data/image_dataset.h"

namespace muster::data {

// One rank's part of a global batch: bytes, and what is to be done with them to get each row of a
// network's input. For a device whose memory is the process's the images are finished but for being
// normalised and erased: a quarter of the floats' memory. For others they are finished only where
// they are not stored decoded, else as they are stored, once for all views, or not here at all.
//
// Where the loader was asked for labels only, there is nothing of images.
//
// With two views the rows of sample i are 2i and 2i + 1.
struct Batch {
  uint64_t step = 0;
  uint64_t epoch = 0;
  // In samples, whatever the number of views:
  uint64_t global_rows = 0;  // of all ranks together
  uint64_t first_row = 0;    // of this rank's in the global batch
  size_t rows = 0;           // samples of this rank * views
  uint32_t views = 1;
  ImageSize size;
  absl::Span<const kernels::ImageRow> images;  // [rows]
  absl::Span<const int32_t> labels;            // [rows]
  // What `images` counts bytes in begins first_pixel bytes before; only part of it is here where
  // the batch is a part of another.
  absl::Span<const uint8_t> pixels;
  size_t first_pixel = 0;
  // In place of pixels, in the device's memory.
  const uint8_t* resident = nullptr;
  // To be recorded when copies of the arrays are queued: until it is done they stay as they are,
  // also when the loader has been asked for the next batch. Null where nothing is copied.
  kernels::DeviceEvent* copied = nullptr;

  // Part `part` of `parts` nearly equal ones, as Share divides the samples: what a step that
  // accumulates gradients computes at a time. Views stay together; a part may be empty.
  Batch Part(uint32_t part, uint32_t parts) const;
};

}  // namespace muster::data

#endif  // MUSTER_TRAINER_DATA_BATCH_H_
