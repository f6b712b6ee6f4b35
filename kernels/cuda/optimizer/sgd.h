// The update rule of SGD, shared by SgdStep and LarsStep.
#ifndef MUSTER_KERNELS_CUDA_OPTIMIZER_SGD_H_
#define MUSTER_KERNELS_CUDA_OPTIMIZER_SGD_H_

#include <cstdint>

#include "kernels/cuda/launch/elements.h"
#include "kernels/optimizer.h"

namespace muster::kernels::MUSTER_INSTRUCTION_SET {

// Vector width of optimizer steps, in elements.
inline constexpr int kStepWidth = 4;

struct SgdBody {
  SgdOptions options;
  const UpdateScalars* scalars;
  float* parameters;
  float* velocities;  // may be null
  const float* gradients;
  template <int kCount>
  MUSTER_HOST_DEVICE void Run(int64_t at) const {
    if (scalars->skip != 0) return;
    const SgdFunctor<float> step{static_cast<float>(scalars->learning_rate), options.momentum,
                                 static_cast<float>(scalars->decay_scale * options.weight_decay),
                                 static_cast<float>(scalars->gradient_scale), options.nesterov};
    Floats<kCount> parameter = Load<kCount>(parameters + at);
    Floats<kCount> velocity = {};
    if (velocities != nullptr) velocity = Load<kCount>(velocities + at);
    const Floats<kCount> gradient = Load<kCount>(gradients + at);
    for (int i = 0; i < kCount; ++i) {
      step(parameter[i], velocity[i], gradient[i]);
      parameter[i] = Rounded(options.round_to, parameter[i]);
      velocity[i] = Rounded(options.round_to, velocity[i]);
    }
    Store<kCount>(parameters + at, parameter);
    if (velocities != nullptr) Store<kCount>(velocities + at, velocity);
  }
};

}  // namespace muster::kernels::MUSTER_INSTRUCTION_SET

#endif  // MUSTER_KERNELS_CUDA_OPTIMIZER_SGD_H_
