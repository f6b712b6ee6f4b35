#include "worker/train/ema.h"

#include <algorithm>

namespace muster::train {

ExponentialMovingAverage::ExponentialMovingAverage(double decay, size_t parameter_elements,
                                                   size_t buffer_elements, kernels::Device& device)
    : device_(device),
      decay_(decay),
      parameter_elements_(parameter_elements),
      buffer_elements_(buffer_elements),
      parameters_(device, parameter_elements),
      buffers_(device, buffer_elements) {}

void ExponentialMovingAverage::Start(const float* parameters, const float* buffers) {
  device_.Copy(parameters_.get(), parameters, parameter_elements_ * sizeof(float));
  device_.Copy(buffers_.get(), buffers, buffer_elements_ * sizeof(float));
}

void ExponentialMovingAverage::Update(uint64_t step, const float* parameters,
                                      const float* buffers) {
  if (step == 0) return Start(parameters, buffers);
  const auto done = static_cast<double>(step);
  const auto weight = static_cast<float>(1 - std::min(decay_, (1 + done) / (10 + done)));
  device_.kernels().lerp(weight, parameters, parameters_.get(), parameter_elements_);
  device_.kernels().lerp(weight, buffers, buffers_.get(), buffer_elements_);
}

}  // namespace muster::train
