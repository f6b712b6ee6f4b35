#include "worker/train/ema.h"

#include <algorithm>

#include "kernels/optimizer.h"

namespace muster::train {

ExponentialMovingAverage::ExponentialMovingAverage(double decay, size_t parameter_elements,
                                                   size_t buffer_elements)
    : weight_(static_cast<float>(1 - decay)),
      parameter_elements_(parameter_elements),
      buffer_elements_(buffer_elements),
      parameters_(MakeAlignedFloats(parameter_elements)),
      buffers_(MakeAlignedFloats(buffer_elements)) {}

void ExponentialMovingAverage::Start(const float* parameters, const float* buffers) {
  std::copy_n(parameters, parameter_elements_, parameters_.get());
  std::copy_n(buffers, buffer_elements_, buffers_.get());
}

void ExponentialMovingAverage::Update(uint64_t step, const float* parameters,
                                      const float* buffers) {
  if (step == 0) return Start(parameters, buffers);
  kernels::Lerp(weight_, parameters, parameters_.get(), parameter_elements_);
  kernels::Lerp(weight_, buffers, buffers_.get(), buffer_elements_);
}

}  // namespace muster::train
