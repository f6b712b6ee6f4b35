#include "trainer/optim/ema.h"

#include "common/status.h"

namespace muster::train {

ExponentialMovingAverage::ExponentialMovingAverage(size_t parameter_elements,
                                                   size_t buffer_elements, kernels::Device& device)
    : device_(device), parameter_elements_(parameter_elements), buffer_elements_(buffer_elements) {}

absl::StatusOr<ExponentialMovingAverage> ExponentialMovingAverage::Create(size_t parameter_elements,
                                                                          size_t buffer_elements,
                                                                          kernels::Device& device) {
  ExponentialMovingAverage average(parameter_elements, buffer_elements, device);
  constexpr char kUse[] = "the moving average";
  ASSIGN_OR_RETURN(average.parameters_,
                   kernels::DeviceFloats::Create(device, parameter_elements, kUse));
  ASSIGN_OR_RETURN(average.buffers_, kernels::DeviceFloats::Create(device, buffer_elements, kUse));
  return average;
}

void ExponentialMovingAverage::Start(const float* parameters, const float* buffers) {
  device_.Copy(parameters_.get(), parameters, parameter_elements_ * sizeof(float));
  device_.Copy(buffers_.get(), buffers, buffer_elements_ * sizeof(float));
}

void ExponentialMovingAverage::Update(const kernels::UpdateScalars* scalars,
                                      const float* parameters, const float* buffers) {
  device_.kernels().lerp(scalars, parameters, parameters_.get(), parameter_elements_);
  device_.kernels().lerp(scalars, buffers, buffers_.get(), buffer_elements_);
}

}  // namespace muster::train
