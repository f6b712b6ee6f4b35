// From a batch's bytes to a network's input.
#ifndef MUSTER_WORKER_DATA_NORMALIZER_H_
#define MUSTER_WORKER_DATA_NORMALIZER_H_

#include <vector>

#include "worker/data/batch.h"
#include "worker/data/image_dataset.h"

namespace muster::data {

// (pixel / 255 - mean) / standard deviation, by channel. Immutable.
class Normalizer {
 public:
  explicit Normalizer(const DatasetInfo& info);

  // As many floats out as the batch has bytes, NHWC; zero in the batch's erasures.
  void Apply(const Batch& batch, float* out) const;

 private:
  std::vector<float> scale_;  // by channel
  std::vector<float> shift_;
};

}  // namespace muster::data

#endif  // MUSTER_WORKER_DATA_NORMALIZER_H_
