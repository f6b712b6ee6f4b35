// An exponential moving average of a model's parameters and running statistics.
#ifndef MUSTER_WORKER_TRAIN_EMA_H_
#define MUSTER_WORKER_TRAIN_EMA_H_

#include <cstddef>
#include <cstdint>

#include "worker/train/aligned_floats.h"

namespace muster::train {

// As torch.optim.swa_utils.AveragedModel with use_buffers: average = decay * average + (1 - decay)
// * value after each step, and the values themselves after the first one. Flat float32 arrays in
// the plan's layout, all that an average is. For one training thread.
class ExponentialMovingAverage {
 public:
  // decay: from 0 to below 1. Arrays of zeros.
  ExponentialMovingAverage(double decay, size_t parameter_elements, size_t buffer_elements);

  // Takes the values for the average so far.
  void Start(const float* parameters, const float* buffers);
  // After step number `step`, counted from 0 in the training's whole life.
  void Update(uint64_t step, const float* parameters, const float* buffers);

  float* parameters() { return parameters_.get(); }
  float* buffers() { return buffers_.get(); }

 private:
  const float weight_;  // 1 - decay
  const size_t parameter_elements_;
  const size_t buffer_elements_;
  AlignedFloats parameters_;
  AlignedFloats buffers_;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_EMA_H_
