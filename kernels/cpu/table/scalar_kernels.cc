#include "kernels/cpu/table/scalar_kernels.h"

#include <algorithm>
#include <cmath>

#include "kernels/half.h"
#include "kernels/update_rules.h"

namespace muster::kernels::cpu {

void BatchNormScale(const BatchNormScaling& scaling, const float* factor_of_all, const float* mean,
                    const float* variance, const float* gamma, const float* beta, const float* bias,
                    float* inverse_deviation, float* scale, float* shift) {
  const float factor = factor_of_all != nullptr ? *factor_of_all : 1.0f;
  for (int64_t c = 0; c < scaling.channels; ++c) {
    inverse_deviation[c] =
        static_cast<float>(1.0 / std::sqrt(static_cast<double>(variance[c]) + scaling.epsilon));
    scale[c] = factor * gamma[c] * inverse_deviation[c];
    shift[c] = factor * beta[c] - mean[c] * scale[c];
    if (bias != nullptr) shift[c] += bias[c] * scale[c];
  }
}

void BatchNormToSums(int64_t channels, double pixels, const float* mean, const float* variance,
                     double* sums) {
  for (int64_t c = 0; c < channels; ++c) {
    const double m = pixels > 0 ? double{mean[c]} : 0;
    const double v = pixels > 0 ? double{variance[c]} : 0;
    sums[c] = pixels * m;
    sums[channels + c] = pixels * (v + m * m);
  }
  sums[2 * channels] = pixels;
}

void BatchNormFromSums(int64_t channels, const double* sums, float* mean, float* variance) {
  const double pixels = sums[2 * channels];
  if (pixels == 0) return;
  for (int64_t c = 0; c < channels; ++c) {
    const double m = sums[c] / pixels;
    mean[c] = static_cast<float>(m);
    variance[c] = static_cast<float>(std::max(0.0, sums[channels + c] / pixels - m * m));
  }
}

void BatchNormRunning(const BatchNormMomentum& momentum, const float* active, const float* mean,
                      const float* variance, float* running_mean, float* running_variance) {
  if (active != nullptr && *active == 0) return;
  const auto share = static_cast<float>(momentum.momentum);
  const double pixels =
      momentum.shared_pixels != nullptr ? *momentum.shared_pixels : momentum.pixels;
  if (pixels == 0) return;
  const float unbiased = pixels > 1 ? static_cast<float>(pixels / (pixels - 1)) : 1.0f;
  for (int64_t c = 0; c < momentum.channels; ++c) {
    running_mean[c] += share * (mean[c] - running_mean[c]);
    running_variance[c] += share * (variance[c] * unbiased - running_variance[c]);
  }
}

size_t BatchNormMaskBytes(const BatchNormShape&) { return 0; }

size_t BatchNormPoolBytes(const BatchNormShape&) { return 0; }

void Dropout(DataType type, const DropoutMask& mask, const RandomDraw* draw, int64_t samples,
             int64_t columns, const void* x, void* y) {
  const float keep_scale = 1.0f / (1.0f - mask.probability);
  for (int64_t sample = 0; sample < samples; ++sample) {
    const uint64_t global_sample = draw->first_sample + static_cast<uint64_t>(sample);
    for (int64_t begin = 0; begin < columns; begin += 4) {
      const PhiloxCounter words = Philox4x32(
          DropoutCounter(mask.layer, global_sample, static_cast<uint32_t>(begin / 4)), draw->key);
      const int64_t count = std::min<int64_t>(4, columns - begin);
      for (int64_t i = 0; i < count; ++i) {
        const bool drop = Uniform01(words[i]) < mask.probability;
        const int64_t at = sample * columns + begin + i;
        StoreElement(type, drop ? 0.0f : LoadElement(type, x, at) * keep_scale, y, at);
      }
    }
  }
}

void DrawBlocks(const RandomDraw* draw, int64_t count, const BlockDraw* blocks,
                BlockState* states) {
  for (int64_t i = 0; i < count; ++i) states[i] = DrawnState(blocks, i, draw->key);
}

void BeginUpdate(const UpdateRules& rules, const UpdateInputs& inputs, UpdateState* state,
                 UpdateScalars* scalars, StepRecord* records) {
  DecideUpdate(rules, inputs, *state, *scalars, records);
}

UpdateScalars LarsRate(const LarsOptions& options, bool adapted, const UpdateScalars& scalars,
                       double parameter_squares, double gradient_squares) {
  return kernels::LarsRate(options, adapted, scalars, parameter_squares, gradient_squares);
}

void RestoreSkipped(const UpdateScalars* scalars, const float* kept, float* values, size_t count) {
  if (scalars->skip != 0) std::copy_n(kept, count, values);
}

}  // namespace muster::kernels::cpu
