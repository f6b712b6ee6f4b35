// See kernels/nt_xent.h. Compiled once per instruction set.
#ifndef MUSTER_KERNELS_CPU_LOSS_NT_XENT_BODY_H_
#define MUSTER_KERNELS_CPU_LOSS_NT_XENT_BODY_H_

#include <cstdint>

#include "kernels/cpu/vector/exponential.h"
#include "kernels/cpu/vector/vector.h"
#include "kernels/nt_xent.h"

namespace muster::kernels::MUSTER_INSTRUCTION_SET {

inline void L2NormalizeForward(int64_t rows, int64_t width, const float* x, float* y,
                               float* inverse_norms) {
  for (int64_t row = 0; row < rows; ++row) {
    const float* from = x + row * width;
    float* to = y + row * width;
    double squares = 0;  // in double, where no square of a float overflows or underflows
    for (int64_t i = 0; i < width; ++i) {
      squares += static_cast<double>(from[i]) * static_cast<double>(from[i]);
    }
    const double norm = __builtin_sqrt(squares);
    const double inverse = norm < kSmallestNorm ? 0 : 1 / norm;
    inverse_norms[row] = static_cast<float>(inverse);
    for (int64_t i = 0; i < width; ++i) {
      to[i] = static_cast<float>(static_cast<double>(from[i]) * inverse);
    }
  }
}

inline void L2NormalizeBackward(int64_t rows, int64_t width, const float* y,
                                const float* inverse_norms, const float* dy, float* dx) {
  for (int64_t row = 0; row < rows; ++row) {
    const float* unit = y + row * width;
    const float* from = dy + row * width;
    float* to = dx + row * width;
    double along = 0;
    for (int64_t i = 0; i < width; ++i) {
      along += static_cast<double>(unit[i]) * static_cast<double>(from[i]);
    }
    const double inverse = static_cast<double>(inverse_norms[row]);
    for (int64_t i = 0; i < width; ++i) {
      to[i] = static_cast<float>(
          (static_cast<double>(from[i]) - along * static_cast<double>(unit[i])) * inverse);
    }
  }
}

// C [rows, columns] = A [rows, depth] B [depth, columns], each with its own row stride.
struct MatrixProduct {
  int64_t rows, depth;
  const float* a;
  int64_t a_stride;
  const float* b;
  int64_t b_stride;
  float* c;
  int64_t c_stride;

  // Called with blocks of columns. Processes as many rows at a time as have their sums in
  // registers.
  template <typename T, int kCount>
  void Run(int64_t column) const {
    constexpr int kRows =
        (kRegisters - kCount - 1) / kCount < 6 ? (kRegisters - kCount - 1) / kCount : 6;
    // The part of B that is used repeatedly stays in a low-level cache.
    constexpr int64_t kDepth = 256;
    for (int64_t begin = 0; begin < depth; begin += kDepth) {
      const int64_t end = begin + kDepth < depth ? begin + kDepth : depth;
      int64_t row = 0;
      for (; row + kRows <= rows; row += kRows) RunRows<T, kCount, kRows>(column, row, begin, end);
      for (; row < rows; ++row) RunRows<T, kCount, 1>(column, row, begin, end);
    }
  }

  template <typename T, int kCount, int kRows>
  MUSTER_ALWAYS_INLINE void RunRows(int64_t column, int64_t row, int64_t begin, int64_t end) const {
    constexpr int kWidth = Element<T>::kWidth;
    T sums[kRows][kCount];
    for (int r = 0; r < kRows; ++r) {
      for (int i = 0; i < kCount; ++i) {
        const float* so_far = c + (row + r) * c_stride + column + i * kWidth;
        sums[r][i] = begin == 0 ? T{} : Element<T>::Load(so_far);
      }
    }
    for (int64_t k = begin; k < end; ++k) {
      T values[kCount];
      for (int i = 0; i < kCount; ++i) {
        values[i] = Element<T>::Load(b + k * b_stride + column + i * kWidth);
      }
      for (int r = 0; r < kRows; ++r) {
        const T factor = Element<T>::Splat(a[(row + r) * a_stride + k]);
        for (int i = 0; i < kCount; ++i) sums[r][i] = sums[r][i] + factor * values[i];
      }
    }
    for (int r = 0; r < kRows; ++r) {
      for (int i = 0; i < kCount; ++i) {
        Element<T>::Store(c + (row + r) * c_stride + column + i * kWidth, sums[r][i]);
      }
    }
  }
};

// Multiplies the values, a multiple of kLanes, by `factor`, and returns the maximum.
inline float ScaleAndFindLargest(float* values, int64_t count, float factor) {
  Vector largest = Vector{} - __builtin_inff();
  for (int64_t i = 0; i < count; i += kLanes) {
    const Vector value = Element<Vector>::Load(values + i) * factor;
    Element<Vector>::Store(values + i, value);
    largest = value > largest ? value : largest;
  }
  float result = largest[0];
  for (int i = 1; i < kLanes; ++i) result = largest[i] > result ? largest[i] : result;
  return result;
}

inline double SumOfExponentials(const float* values, int64_t count, float largest) {
  Vector sum = {};
  for (int64_t i = 0; i < count; i += kLanes) {
    sum = sum + Exponential(Element<Vector>::Load(values + i) - largest);
  }
  double result = 0;
  for (int i = 0; i < kLanes; ++i) result += static_cast<double>(sum[i]);
  return result;
}

// Same as NtXentShape::row_stride(), which is inline and not in this instruction set's namespace.
inline int64_t RowStrideOf(const NtXentShape& shape) { return (shape.samples + 15) / 16 * 16; }

inline void NtXentForward(const NtXentShape& shape, const float* units, float* logits,
                          float* log_sums, float* workspace, LossResult* result) {
  const int64_t row_stride = RowStrideOf(shape);
  const float inverse_temperature = 1.0f / shape.temperature;
  for (int64_t i = 0; i < shape.width; ++i) {
    float* to = workspace + i * row_stride;
    for (int64_t j = 0; j < shape.samples; ++j) {
      to[j] = units[j * shape.width + i];
    }
    for (int64_t j = shape.samples; j < row_stride; ++j) to[j] = 0;
  }
  ForEachChannelBlock(row_stride,
                      MatrixProduct{shape.anchors, shape.width, units + shape.first * shape.width,
                                    shape.width, workspace, row_stride, logits, row_stride});

  *result = LossResult{};
  constexpr float kInfinity = __builtin_inff();
  for (int64_t anchor = 0; anchor < shape.anchors; ++anchor) {
    float* logit = logits + anchor * row_stride;
    const int64_t self = shape.first + anchor;
    const float positive = logit[self ^ 1] * inverse_temperature;
    logit[self] = -kInfinity;
    for (int64_t j = shape.samples; j < row_stride; ++j) logit[j] = -kInfinity;
    logit[self ^ 1] = -kInfinity;
    const float negative = ScaleAndFindLargest(logit, row_stride, inverse_temperature);
    logit[self ^ 1] = positive;
    // The maximum is subtracted, so that exp never overflows and the sum is at least 1.
    const float largest = negative > positive ? negative : positive;
    const double log_sum = __builtin_log(SumOfExponentials(logit, row_stride, largest));
    log_sums[anchor] = static_cast<float>(static_cast<double>(largest) + log_sum);
    result->loss_sum += log_sum - (static_cast<double>(positive) - static_cast<double>(largest));
    result->correct += positive > negative ? 1 : 0;
  }
}

inline void NtXentBackward(const NtXentShape& shape, double scale, const double* loss_scale,
                           const float* units, const float* log_sums, float* logits,
                           float* dunits) {
  const int64_t row_stride = RowStrideOf(shape);
  const float factor =
      static_cast<float>(scale * (loss_scale != nullptr ? *loss_scale : 1.0)) / shape.temperature;
  for (int64_t anchor = 0; anchor < shape.anchors; ++anchor) {
    float* coefficient = logits + anchor * row_stride;
    const int64_t self = shape.first + anchor;
    const float log_sum = log_sums[self];
    for (int64_t j = 0; j < row_stride; j += kLanes) {
      const Vector logit = Element<Vector>::Load(coefficient + j);
      const Vector both =
          Exponential(logit - log_sum) + Exponential(logit - Element<Vector>::Load(log_sums + j));
      Element<Vector>::Store(coefficient + j, both * factor);
    }
    coefficient[self ^ 1] -= 2 * factor;
  }
  ForEachChannelBlock(shape.width, MatrixProduct{shape.anchors, shape.samples, logits, row_stride,
                                                 units, shape.width, dunits, shape.width});
}

}  // namespace muster::kernels::MUSTER_INSTRUCTION_SET

#endif  // MUSTER_KERNELS_CPU_LOSS_NT_XENT_BODY_H_
