// An exponential moving average of a model's parameters and running statistics.
#ifndef MUSTER_TRAINER_OPTIM_EMA_H_
#define MUSTER_TRAINER_OPTIM_EMA_H_

#include <cstddef>
#include <cstdint>

#include "kernels/device.h"
#include "trainer/strategy/device_floats.h"

namespace muster::train {

// After each update average = d * average + (1 - d) * value. d is the spec's decay, but at most (1
// + update) / (10 + update): otherwise the average would for thousands of steps be mostly what the
// weights were at first. After the first update it is the values themselves. Flat float32 arrays in
// the plan's layout, all that an average is. For one training thread.
class ExponentialMovingAverage {
 public:
  // Arrays of zeros.
  ExponentialMovingAverage(size_t parameter_elements, size_t buffer_elements,
                           kernels::Device& device = kernels::CpuDevice());

  // Takes the values for the average so far.
  void Start(const float* parameters, const float* buffers);
  // After an update that was not skipped, by its average_weight.
  void Update(const kernels::UpdateScalars* scalars, const float* parameters, const float* buffers);

  float* parameters() { return parameters_.get(); }
  float* buffers() { return buffers_.get(); }

 private:
  kernels::Device& device_;
  const size_t parameter_elements_;
  const size_t buffer_elements_;
  DeviceFloats parameters_;
  DeviceFloats buffers_;
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_OPTIM_EMA_H_
