#include <cmath>

#include "kernels/half.h"
#include "kernels/reference/reference_kernels.h"

namespace muster::kernels::reference {

void SgdStep(const SgdOptions& options, const UpdateScalars* scalars, float* parameters,
             float* velocities, const float* gradients, size_t count) {
  if (scalars->skip != 0) return;
  const double momentum = options.momentum;
  for (size_t i = 0; i < count; ++i) {
    const double gradient = scalars->gradient_scale * double{gradients[i]} +
                            scalars->decay_scale * options.weight_decay * double{parameters[i]};
    const double velocity =
        gradient + (velocities != nullptr ? momentum * double{velocities[i]} : 0.0);
    if (velocities != nullptr) velocities[i] = RoundTo(options.round_to, velocity);
    const double update = options.nesterov ? gradient + momentum * velocity : velocity;
    parameters[i] =
        RoundTo(options.round_to, double{parameters[i]} - scalars->learning_rate * update);
  }
}

void AdamWStep(const AdamWOptions& options, const UpdateScalars* scalars, float* parameters,
               float* exp_avg, float* exp_avg_sq, const float* gradients, size_t count) {
  if (scalars->skip != 0) return;
  for (size_t i = 0; i < count; ++i) {
    const double gradient = scalars->gradient_scale * double{gradients[i]};
    const double average = options.beta1 * double{exp_avg[i]} + (1 - options.beta1) * gradient;
    const double average_square =
        options.beta2 * double{exp_avg_sq[i]} + (1 - options.beta2) * gradient * gradient;
    const double deviation = std::sqrt(average_square) * scalars->root_scale;
    const double decayed =
        double{parameters[i]} * (1 - scalars->learning_rate * options.weight_decay);
    const double updated = decayed - scalars->step_size * average / (deviation + options.epsilon);
    parameters[i] = RoundTo(options.round_to, updated);
    exp_avg[i] = RoundTo(options.round_to, average);
    exp_avg_sq[i] = RoundTo(options.round_to, average_square);
  }
}

void SumOfSquares(const float* x, size_t count, double* sum) {
  *sum = 0;
  for (size_t i = 0; i < count; ++i) *sum += double{x[i]} * double{x[i]};
}

void Lerp(const UpdateScalars* scalars, const float* x, float* y, size_t count) {
  if (scalars->skip != 0) return;
  const double weight = scalars->average_weight;
  for (size_t i = 0; i < count; ++i) {
    y[i] = static_cast<float>(double{y[i]} + weight * (double{x[i]} - double{y[i]}));
  }
}

}  // namespace muster::kernels::reference
