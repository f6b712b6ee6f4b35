#include "kernels/nt_xent.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/reference/reference_kernels.h"

namespace muster::kernels::reference {
namespace {

double Product(const float* a, const float* b, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += double{a[i]} * double{b[i]};
  return sum;
}

double Logit(const NtXentShape& shape, const float* units, int64_t i, int64_t j) {
  return Product(units + i * shape.width, units + j * shape.width, shape.width) /
         double{shape.temperature};
}

}  // namespace

void L2NormalizeForward(int64_t rows, int64_t width, const float* x, float* y,
                        float* inverse_norms) {
  for (int64_t row = 0; row < rows; ++row) {
    const double norm = std::sqrt(Product(x + row * width, x + row * width, width));
    const double inverse = norm < kSmallestNorm ? 0 : 1 / norm;
    inverse_norms[row] = static_cast<float>(inverse);
    for (int64_t i = row * width; i < (row + 1) * width; ++i) {
      y[i] = static_cast<float>(x[i] * inverse);
    }
  }
}

void L2NormalizeBackward(int64_t rows, int64_t width, const float* y, const float* inverse_norms,
                         const float* dy, float* dx) {
  for (int64_t row = 0; row < rows; ++row) {
    const double along = Product(dy + row * width, y + row * width, width);
    for (int64_t i = row * width; i < (row + 1) * width; ++i) {
      dx[i] = static_cast<float>((dy[i] - along * y[i]) * inverse_norms[row]);
    }
  }
}

void NtXentForward(const NtXentShape& shape, const float* units, float* logits, float* log_sums,
                   float* /*workspace*/, LossResult* result) {
  *result = {};
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (int64_t anchor = 0; anchor < shape.anchors; ++anchor) {
    const int64_t self = shape.first + anchor;
    const double positive = Logit(shape, units, self, self ^ 1);
    double negative = -kInfinity;
    for (int64_t j = 0; j < shape.samples; ++j) {
      const double logit = j == self ? -kInfinity : Logit(shape, units, self, j);
      if (j != (self ^ 1)) negative = std::max(negative, logit);
      logits[anchor * shape.row_stride() + j] = static_cast<float>(logit);
    }
    const double largest = std::max(positive, negative);
    double sum = 0;
    for (int64_t j = 0; j < shape.samples; ++j) {
      if (j != self) sum += std::exp(Logit(shape, units, self, j) - largest);
    }
    log_sums[anchor] = static_cast<float>(largest + std::log(sum));
    result->loss_sum += largest + std::log(sum) - positive;
    result->correct += positive > negative ? 1 : 0;
  }
}

void NtXentBackward(const NtXentShape& shape, double scale, const double* loss_scale,
                    const float* units, const float* log_sums, float* /*logits*/, float* dunits) {
  const double factor =
      scale * (loss_scale != nullptr ? *loss_scale : 1) / double{shape.temperature};
  for (int64_t anchor = 0; anchor < shape.anchors; ++anchor) {
    const int64_t self = shape.first + anchor;
    std::vector<double> sums(shape.width);
    for (int64_t j = 0; j < shape.samples; ++j) {
      if (j == self) continue;
      const double logit = Logit(shape, units, self, j);
      double coefficient = std::exp(logit - log_sums[self]) + std::exp(logit - log_sums[j]);
      if (j == (self ^ 1)) coefficient -= 2;
      for (int64_t i = 0; i < shape.width; ++i) sums[i] += coefficient * units[j * shape.width + i];
    }
    for (int64_t i = 0; i < shape.width; ++i) {
      dunits[anchor * shape.width + i] = static_cast<float>(factor * sums[i]);
    }
  }
}

}  // namespace muster::kernels::reference
