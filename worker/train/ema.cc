#include "worker/train/ema.h"

#include <algorithm>

#include "kernels/kernel_table.h"

namespace muster::train {

ExponentialMovingAverage::ExponentialMovingAverage(double decay, size_t parameter_elements,
                                                   size_t buffer_elements)
    : decay_(decay),
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
  const auto done = static_cast<double>(step);
  const auto weight = static_cast<float>(1 - std::min(decay_, (1 + done) / (10 + done)));
  kernels::CpuKernels().lerp(weight, parameters, parameters_.get(), parameter_elements_);
  kernels::CpuKernels().lerp(weight, buffers, buffers_.get(), buffer_elements_);
}

}  // namespace muster::train
