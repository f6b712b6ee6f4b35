// LARS; see kernels/lars.h. Compiled once per instruction set.
#ifndef MUSTER_KERNELS_CPU_OPTIMIZER_LARS_BODY_H_
#define MUSTER_KERNELS_CPU_OPTIMIZER_LARS_BODY_H_

#include <cstdint>

#include "kernels/cpu/optimizer/optimizer_body.h"
#include "kernels/cpu/table/scalar_kernels.h"
#include "kernels/lars.h"

namespace muster::kernels::MUSTER_INSTRUCTION_SET {

inline void LarsRates(const LarsOptions& options, const LarsTensor* tensors,
                      const UpdateScalars* scalars, const float* parameters, const float* gradients,
                      UpdateScalars* rates) {
  for (int64_t i = 0; i < options.tensors; ++i) {
    const LarsTensor& tensor = tensors[i];
    double parameter_squares = 0, gradient_squares = 0;
    if (tensor.adapted) {
      SumOfSquares(parameters + tensor.offset, tensor.count, &parameter_squares);
      SumOfSquares(gradients + tensor.offset, tensor.count, &gradient_squares);
    }
    rates[i] =
        cpu::LarsRate(options, tensor.adapted, *scalars, parameter_squares, gradient_squares);
  }
}

inline void LarsStep(const LarsOptions& options, const LarsTensor* tensors,
                     const UpdateScalars* rates, float* parameters, float* velocities,
                     const float* gradients) {
  for (int64_t i = 0; i < options.tensors; ++i) {
    const LarsTensor& tensor = tensors[i];
    const SgdOptions step{.momentum = options.momentum,
                          .weight_decay = tensor.adapted ? options.weight_decay : 0,
                          .round_to = options.round_to};
    SgdStep(step, rates + i, parameters + tensor.offset,
            velocities == nullptr ? nullptr : velocities + tensor.offset, gradients + tensor.offset,
            tensor.count);
  }
}

}  // namespace muster::kernels::MUSTER_INSTRUCTION_SET

#endif  // MUSTER_KERNELS_CPU_OPTIMIZER_LARS_BODY_H_
