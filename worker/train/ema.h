// An exponential moving average of a model's parameters and running statistics.
#ifndef MUSTER_WORKER_TRAIN_EMA_H_
#define MUSTER_WORKER_TRAIN_EMA_H_

#include <cstddef>
#include <cstdint>

#include "kernels/device.h"
#include "worker/train/device_floats.h"

namespace muster::train {

// After each step average = d * average + (1 - d) * value. d is `decay`, but at most (1 + step) /
// (10 + step): otherwise the average would for thousands of steps be mostly what the weights were
// at first. After the first step it is the values themselves. Flat float32 arrays in the plan's
// layout, all that an average is. For one training thread.
class ExponentialMovingAverage {
 public:
  // decay: from 0 to below 1. Arrays of zeros.
  ExponentialMovingAverage(double decay, size_t parameter_elements, size_t buffer_elements,
                           kernels::Device& device = kernels::CpuDevice());

  // Takes the values for the average so far.
  void Start(const float* parameters, const float* buffers);
  // After step number `step`, counted from 0 in the training's whole life.
  void Update(uint64_t step, const float* parameters, const float* buffers);

  float* parameters() { return parameters_.get(); }
  float* buffers() { return buffers_.get(); }

 private:
  kernels::Device& device_;
  const double decay_;
  const size_t parameter_elements_;
  const size_t buffer_elements_;
  DeviceFloats parameters_;
  DeviceFloats buffers_;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_EMA_H_
