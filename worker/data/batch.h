// What a loader hands to a training step.
#ifndef MUSTER_WORKER_DATA_BATCH_H_
#define MUSTER_WORKER_DATA_BATCH_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "worker/data/augment.h"
#include "worker/data/image_dataset.h"

namespace muster::data {

// One rank's part of a global batch, transformed but not yet normalised: a quarter of the memory,
// and the step's own thread turns it into floats where they are needed.
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
  absl::Span<const uint8_t> pixels;  // [rows, height, width, channels]
  absl::Span<const int32_t> labels;  // [rows]
  // [rows]: what becomes zero once it is normalised; or none at all.
  absl::Span<const Rectangle> erasures;

  // Part `part` of `parts` nearly equal ones, as Share divides the samples: what a step that
  // accumulates gradients computes at a time. Views stay together; a part may be empty.
  Batch Part(uint32_t part, uint32_t parts) const;
};

}  // namespace muster::data

#endif  // MUSTER_WORKER_DATA_BATCH_H_
