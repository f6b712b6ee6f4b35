// Exponential moving average (EMA) of a model's parameters and running statistics.
#ifndef MUSTER_TRAINER_OPTIM_EMA_H_
#define MUSTER_TRAINER_OPTIM_EMA_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "kernels/device_floats.h"

namespace muster::train {

// After each update, average = d * average + (1 - d) * value. d is the spec's decay, limited to (1
// + update) / (10 + update): otherwise the initial weights would dominate the average for thousands
// of steps. After the first update the average equals the values. The arrays are flat float32
// arrays in the plan's layout and are the only state. Used by one training thread.
class ExponentialMovingAverage {
 public:
  // The arrays are initially zero. RESOURCE_EXHAUSTED if out of device memory.
  static absl::StatusOr<ExponentialMovingAverage> Create(
      size_t parameter_elements, size_t buffer_elements,
      kernels::Device& device = kernels::CpuDevice());

  // Initializes the average with the given values.
  void Start(const float* parameters, const float* buffers);
  // Called after an update; uses scalars->average_weight.
  void Update(const kernels::UpdateScalars* scalars, const float* parameters, const float* buffers);

  float* parameters() const { return parameters_.get(); }
  float* buffers() const { return buffers_.get(); }

 private:
  ExponentialMovingAverage(size_t parameter_elements, size_t buffer_elements,
                           kernels::Device& device);

  kernels::Device& device_;
  const size_t parameter_elements_;
  const size_t buffer_elements_;
  kernels::DeviceFloats parameters_;
  kernels::DeviceFloats buffers_;
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_OPTIM_EMA_H_
