#include "kernels/reference/reference_kernels.h"
#include "kernels/update_rules.h"

namespace muster::kernels::reference {

void LarsRates(const LarsOptions& options, const LarsTensor* tensors, const UpdateScalars* scalars,
               const float* parameters, const float* gradients, UpdateScalars* rates) {
  for (int64_t i = 0; i < options.tensors; ++i) {
    const LarsTensor& tensor = tensors[i];
    double parameter_squares = 0, gradient_squares = 0;
    SumOfSquares(parameters + tensor.offset, tensor.count, &parameter_squares);
    SumOfSquares(gradients + tensor.offset, tensor.count, &gradient_squares);
    rates[i] = LarsRate(options, tensor.adapted, *scalars, parameter_squares, gradient_squares);
  }
}

void LarsStep(const LarsOptions& options, const LarsTensor* tensors, const UpdateScalars* rates,
              float* parameters, float* velocities, const float* gradients) {
  for (int64_t i = 0; i < options.tensors; ++i) {
    const LarsTensor& tensor = tensors[i];
    SgdStep({.momentum = options.momentum,
             .weight_decay = tensor.adapted ? options.weight_decay : 0,
             .round_to = options.round_to},
            rates + i, parameters + tensor.offset,
            velocities == nullptr ? nullptr : velocities + tensor.offset, gradients + tensor.offset,
            tensor.count);
  }
}

}  // namespace muster::kernels::reference
