// The batches that a loader passes to training steps.
#ifndef MUSTER_TRAINER_DATA_BATCH_H_
#define MUSTER_TRAINER_DATA_BATCH_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "kernels/device.h"
#include "kernels/image_transform.h"
#include "trainer/data/image_dataset.h"
#include "trainer/data/sampler.h"

namespace muster::data {

// One rank's slice of a global batch: image bytes, and the operations that turn them into the
// network's inputs. If device memory is host memory, the images are finished except for
// normalisation and erasing, which takes a quarter of the memory of floats. On other devices,
// images that are stored decoded are passed as they are stored, once for all views, or not at all
// if they are resident; other images are finished as above.
//
// If the loader was asked for labels only, there is no image data.
//
// With two views, the inputs of sample i are at indices 2i and 2i + 1.
struct Batch {
  uint64_t step = 0;
  uint64_t epoch = 0;
  // Independent of the number of views:
  uint64_t global_samples = 0;  // samples of all ranks
  uint64_t first_sample = 0;    // index of this rank's first sample in the global batch
  // This rank's samples, all views counted.
  size_t samples = 0;
  uint32_t views = 1;
  ImageSize size;
  absl::Span<const kernels::ImageTransformParams> images;  // [samples]
  absl::Span<const int32_t> labels;                        // [samples]
  // Image bytes. Offsets in `images` count from first_pixel bytes before its start, because a slice
  // of a batch holds only a part of the bytes.
  absl::Span<const uint8_t> pixels;
  size_t first_pixel = 0;
  // Used instead of `pixels`; in device memory.
  const uint8_t* resident = nullptr;
  // The consumer records this event after queueing copies of the arrays; the loader leaves the
  // arrays unchanged until it is done, even after the next call of Next. Null if nothing is copied.
  kernels::DeviceEvent* copied = nullptr;

  // Returns the samples in `range`, which counts each sample once, from this batch's first one.
  Batch Samples(SampleRange range) const;
  // Returns slice `slice` of `slices` nearly equal slices, divided as by Share: a micro-batch of a
  // step with gradient accumulation. Views of a sample stay together; a slice may be empty.
  Batch Slice(uint32_t slice, uint32_t slices) const;
};

}  // namespace muster::data

#endif  // MUSTER_TRAINER_DATA_BATCH_H_
