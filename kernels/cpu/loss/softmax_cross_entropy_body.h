// Softmax with cross-entropy; see kernels/softmax_cross_entropy.h. Compiled once per instruction
// set.
#ifndef MUSTER_KERNELS_CPU_LOSS_SOFTMAX_CROSS_ENTROPY_BODY_H_
#define MUSTER_KERNELS_CPU_LOSS_SOFTMAX_CROSS_ENTROPY_BODY_H_

#include <cstdint>

#include "kernels/cpu/vector/exponential.h"
#include "kernels/cpu/vector/vector.h"
#include "kernels/softmax_cross_entropy.h"

namespace muster::kernels::MUSTER_INSTRUCTION_SET {

inline double SumOfLanes(Vector values) {
  double sum = 0;
  for (int lane = 0; lane < kLanes; ++lane) sum += static_cast<double>(values[lane]);
  return sum;
}

// NaN only if the first logit is NaN.
inline float LargestLogit(const float* logit, int64_t classes) {
  float largest = logit[0];
  int64_t c = 0;
  if (classes >= kLanes) {
    Vector largest_lanes = Element<Vector>::Splat(largest);
    for (; c + kLanes <= classes; c += kLanes) {
      const Vector candidate = Element<Vector>::Load(logit + c);
      largest_lanes = candidate > largest_lanes ? candidate : largest_lanes;
    }
    for (int lane = 0; lane < kLanes; ++lane) {
      largest = largest_lanes[lane] > largest ? largest_lanes[lane] : largest;
    }
  }
  for (; c < classes; ++c) largest = logit[c] > largest ? logit[c] : largest;
  return largest;
}

// Sums over one sample's logits minus their maximum: exp never overflows, and the sum is at least
// 1.
struct LogitSums {
  double exponentials = 0;
  double distances = 0;
};

// Also writes the exponentials unless `exponentials` is null.
inline LogitSums SumLogits(const float* logit, int64_t classes, float largest,
                           float* exponentials) {
  constexpr int64_t kVectorsPerSum = 64;  // in float before adding to double
  LogitSums sums;
  int64_t c = 0;
  while (c + kLanes <= classes) {
    const int64_t limit = c + kVectorsPerSum * kLanes;
    const int64_t end = limit < classes ? limit : classes;
    Vector exponential_sum = {};
    Vector distance_sum = {};
    for (; c + kLanes <= end; c += kLanes) {
      const Vector distance = Element<Vector>::Load(logit + c) - largest;
      const Vector exponential = Exponential(distance);
      exponential_sum = exponential_sum + exponential;
      distance_sum = distance_sum + distance;
      if (exponentials != nullptr) Element<Vector>::Store(exponentials + c, exponential);
    }
    sums.exponentials += SumOfLanes(exponential_sum);
    sums.distances += SumOfLanes(distance_sum);
  }
  for (; c < classes; ++c) {
    const float distance = logit[c] - largest;
    const float exponential = Exponential(distance);
    sums.exponentials += static_cast<double>(exponential);
    sums.distances += static_cast<double>(distance);
    if (exponentials != nullptr) exponentials[c] = exponential;
  }
  return sums;
}

// scale * (exponential * inverse_sum - target), in place.
struct LogitGradientBody {
  float scale;
  float inverse_sum;
  float target;
  float* values;
  template <typename T>
  void Run(size_t i) const {
    const T probability = Element<T>::Load(values + i) * Element<T>::Splat(inverse_sum);
    Element<T>::Store(values + i,
                      Element<T>::Splat(scale) * (probability - Element<T>::Splat(target)));
  }
};

inline bool IsFirstLargest(const float* logit, int64_t label, float largest) {
  if (logit[label] != largest) return false;
  for (int64_t c = 0; c < label; ++c) {
    if (logit[c] == largest) return false;
  }
  return true;
}

inline void SoftmaxCrossEntropy(const CrossEntropyOptions& options, const float* logits,
                                const int32_t* labels, const double* loss_scale, float* dlogits,
                                LossResult* result) {
  *result = LossResult{};
  const float scale =
      static_cast<float>(options.scale * (loss_scale != nullptr ? *loss_scale : 1.0));
  const int64_t classes = options.classes;
  const double smoothing = options.label_smoothing;
  const float off_target = static_cast<float>(smoothing / static_cast<double>(classes));
  const float on_target = static_cast<float>(1.0 - smoothing) + off_target;
  for (int64_t sample = 0; sample < options.samples; ++sample) {
    const float* logit = logits + sample * classes;
    const int64_t label = labels[sample];
    const float largest = LargestLogit(logit, classes);
    float* const gradient = dlogits != nullptr ? dlogits + sample * classes : nullptr;
    const LogitSums sums = SumLogits(logit, classes, largest, gradient);
    result->loss_sum += __builtin_log(sums.exponentials) -
                        (1.0 - smoothing) * static_cast<double>(logit[label] - largest) -
                        smoothing / static_cast<double>(classes) * sums.distances;
    if (IsFirstLargest(logit, label, largest)) ++result->correct;
    if (gradient == nullptr) continue;
    const float inverse_sum = static_cast<float>(1.0 / sums.exponentials);
    const float probability = gradient[label] * inverse_sum;
    ForEachElement(static_cast<size_t>(classes),
                   LogitGradientBody{scale, inverse_sum, off_target, gradient});
    gradient[label] = scale * (probability - on_target);
  }
}

}  // namespace muster::kernels::MUSTER_INSTRUCTION_SET

#endif  // MUSTER_KERNELS_CPU_LOSS_SOFTMAX_CROSS_ENTROPY_BODY_H_
