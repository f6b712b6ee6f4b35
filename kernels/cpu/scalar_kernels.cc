#include "kernels/cpu/scalar_kernels.h"

#include <algorithm>
#include <cmath>

namespace muster::kernels::cpu {

void Dropout(const DropoutMask& mask, int64_t rows, int64_t columns, const float* x, float* y) {
  const float keep_scale = 1.0f / (1.0f - mask.probability);
  for (int64_t row = 0; row < rows; ++row) {
    const uint64_t global_row = mask.first_row + static_cast<uint64_t>(row);
    const float* from = x + row * columns;
    float* to = y + row * columns;
    for (int64_t begin = 0; begin < columns; begin += 4) {
      const PhiloxCounter words =
          Philox4x32(DropoutCounter(mask, global_row, static_cast<uint32_t>(begin / 4)), mask.key);
      const int64_t count = std::min<int64_t>(4, columns - begin);
      for (int64_t i = 0; i < count; ++i) {
        const bool drop = Uniform01(words[i]) < mask.probability;
        to[begin + i] = drop ? 0.0f : from[begin + i] * keep_scale;
      }
    }
  }
}

CrossEntropyResult SoftmaxCrossEntropy(const CrossEntropyOptions& options, const float* logits,
                                       const int32_t* labels, float* dlogits) {
  CrossEntropyResult result;
  const int64_t classes = options.classes;
  const double smoothing = options.label_smoothing;
  const float off_target = static_cast<float>(smoothing / static_cast<double>(classes));
  const float on_target = static_cast<float>(1.0 - smoothing) + off_target;
  for (int64_t row = 0; row < options.rows; ++row) {
    const float* logit = logits + row * classes;
    const int64_t label = labels[row];
    const int64_t best = std::max_element(logit, logit + classes) - logit;
    const float largest = logit[best];
    // The largest is subtracted: exp never overflows, and the sum is at least 1.
    double sum = 0;
    double distance_sum = 0;
    for (int64_t c = 0; c < classes; ++c) {
      sum += static_cast<double>(std::exp(logit[c] - largest));
      distance_sum += static_cast<double>(logit[c] - largest);
    }
    const double log_sum = std::log(sum);
    const double label_distance = static_cast<double>(logit[label] - largest);
    result.loss_sum += log_sum - (1.0 - smoothing) * label_distance -
                       smoothing / static_cast<double>(classes) * distance_sum;
    if (best == label && !std::isnan(largest)) ++result.correct;
    if (dlogits == nullptr) continue;
    const float inverse_sum = static_cast<float>(1.0 / sum);
    float* gradient = dlogits + row * classes;
    for (int64_t c = 0; c < classes; ++c) {
      const float target = c == label ? on_target : off_target;
      gradient[c] = options.scale * (std::exp(logit[c] - largest) * inverse_sum - target);
    }
  }
  return result;
}

}  // namespace muster::kernels::cpu
