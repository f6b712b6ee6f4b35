// Random crops and flips of stored images, and their normalisation to float.
#ifndef MUSTER_WORKER_DATA_AUGMENT_H_
#define MUSTER_WORKER_DATA_AUGMENT_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "worker/data/dataset.h"

namespace muster::data {

struct AugmentOptions {
  uint32_t crop_padding =
      0;              // pixels of value 0 around the image before a random crop back to its size
  bool flip = false;  // left to right, with probability one half
  uint64_t seed = 0;
};

// Where an image is put: out(y, x) = in(y + dy, x + dx), zero outside, then mirrored.
struct Placement {
  int32_t dy = 0;
  int32_t dx = 0;
  bool flip = false;
};

// A function of (seed, epoch, sample) alone, whichever rank, thread or batch asks.
Placement DrawPlacement(const AugmentOptions& options, uint64_t epoch, uint64_t sample);

// height * width * channels bytes, HWC, from `image` to `out`.
void PlaceImage(const uint8_t* image, const DatasetInfo& info, const Placement& placement,
                uint8_t* out);

// (pixel / 255 - mean) / standard deviation, by channel. Immutable.
class Normalizer {
 public:
  explicit Normalizer(const DatasetInfo& info);
  // Whole pixels in, as many floats out.
  void Apply(absl::Span<const uint8_t> pixels, float* out) const;

 private:
  std::vector<float> scale_;  // by channel
  std::vector<float> shift_;
};

}  // namespace muster::data

#endif  // MUSTER_WORKER_DATA_AUGMENT_H_
