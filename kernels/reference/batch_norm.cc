#include <cmath>
#include <vector>

#include "kernels/batch_norm_prepare.h"
#include "kernels/batch_norm_shortcut.h"
#include "kernels/half.h"
#include "kernels/reference/activation.h"
#include "kernels/reference/reference_kernels.h"

namespace muster::kernels::reference {
namespace {

// Index in x of a cell of the window under element `out` of the pooled y; cells are numbered row by
// row. -1: the cell is in the padding.
int64_t UnderWindow(const BatchNormShape& shape, int64_t out, int64_t cell) {
  const auto position = [&](int64_t window, int64_t within) {
    return window * shape.pool_stride - shape.pool_padding + within;
  };
  const int64_t c = out % shape.channels;
  const int64_t w = position(out / shape.channels % shape.out_width(), cell % shape.pool_kernel);
  const int64_t row = out / shape.channels / shape.out_width();
  const int64_t h = position(row % shape.out_height(), cell / shape.pool_kernel);
  if (h < 0 || h >= shape.height || w < 0 || w >= shape.width) return -1;
  const int64_t sample = row / shape.out_height();
  return ((sample * shape.height + h) * shape.width + w) * shape.channels + c;
}

double PixelsOf(const BatchNormGradient& gradient) {
  return gradient.shared_pixels != nullptr ? *gradient.shared_pixels : gradient.pixels;
}

// Index in the addend of dy's element i; -1 where the addend is 0.
int64_t IndexOfAddend(const BatchNormShape& shape, const BatchNormGradient& gradient, int64_t i) {
  const int64_t stride = gradient.dy_addend_stride;
  const int64_t height = shape.out_height(), width = shape.out_width();
  const int64_t pixel = i / shape.channels;
  const int64_t w = pixel % width, h = pixel / width % height, sample = pixel / width / height;
  if (w % stride != 0 || h % stride != 0) return -1;
  const int64_t rows = (height + stride - 1) / stride, columns = (width + stride - 1) / stride;
  return ((sample * rows + h / stride) * columns + w / stride) * shape.channels +
         i % shape.channels;
}

// Element i of dy, including its addend.
double GradientAt(const BatchNormShape& shape, const BatchNormGradient& gradient, int64_t i) {
  const float dy = LoadElement(shape.type, gradient.dy, i);
  if (gradient.dy_addend == nullptr) return dy;
  const int64_t addend = IndexOfAddend(shape, gradient, i);
  if (addend < 0) return dy;
  float rounded = 0;
  StoreElement(shape.type, dy + LoadElement(shape.type, gradient.dy_addend, addend), &rounded, 0);
  return LoadElement(shape.type, &rounded, 0);
}

// The gradient of the normalised values before activation and pooling, shaped like x.
std::vector<double> UnpooledGradient(const BatchNormShape& shape,
                                     const BatchNormGradient& gradient) {
  std::vector<double> dy(shape.pixels() * shape.channels, 0.0);
  if (shape.pool) {
    for (int64_t out = 0; out < shape.out_pixels() * shape.channels; ++out) {
      const uint8_t cell = gradient.choice[out];
      if (cell != kNoChoice) dy[UnderWindow(shape, out, cell)] += GradientAt(shape, gradient, out);
    }
    return dy;
  }
  for (size_t i = 0; i < dy.size(); ++i) {
    const int64_t c = static_cast<int64_t>(i) % shape.channels;
    if (gradient.mask != nullptr) {
      if ((gradient.mask[i / 8] >> i % 8 & 1) != 0) {
        dy[i] = GradientAt(shape, gradient, static_cast<int64_t>(i));
      }
      continue;
    }
    const double value = gradient.y != nullptr
                             ? LoadElement(shape.type, gradient.y, i)
                             : LoadElement(shape.type, gradient.x, i) * double{gradient.scale[c]} +
                                   double{gradient.shift[c]};
    if (GradientPasses(shape.activation, value)) {
      dy[i] = GradientAt(shape, gradient, static_cast<int64_t>(i));
    }
  }
  return dy;
}

double Normalised(const BatchNormShape& shape, const BatchNormGradient& gradient, int64_t i) {
  const int64_t c = i % shape.channels;
  return (LoadElement(shape.type, gradient.x, i) - double{gradient.mean[c]}) *
         double{gradient.inverse_deviation[c]};
}

}  // namespace

void BatchNormStatistics(const BatchNormShape& shape, const void* x, float* mean, float* variance) {
  const double pixels = static_cast<double>(shape.pixels());
  for (int64_t c = 0; c < shape.channels; ++c) {
    double sum = 0;
    for (int64_t p = 0; p < shape.pixels(); ++p) {
      sum += LoadElement(shape.type, x, p * shape.channels + c);
    }
    double squares = 0;
    for (int64_t p = 0; p < shape.pixels(); ++p) {
      const double distance = LoadElement(shape.type, x, p * shape.channels + c) - sum / pixels;
      squares += distance * distance;
    }
    mean[c] = static_cast<float>(sum / pixels);
    variance[c] = static_cast<float>(squares / pixels);
  }
}

void BatchNormScale(const BatchNormScaling& scaling, const float* factor_of_all, const float* mean,
                    const float* variance, const float* gamma, const float* beta, const float* bias,
                    float* inverse_deviation, float* scale, float* shift) {
  const double factor = factor_of_all != nullptr ? double{*factor_of_all} : 1;
  for (int64_t c = 0; c < scaling.channels; ++c) {
    const double inverse = 1 / std::sqrt(double{variance[c]} + scaling.epsilon);
    const double product = factor * double{gamma[c]} * inverse;
    const double added = bias != nullptr ? double{bias[c]} : 0;
    inverse_deviation[c] = static_cast<float>(inverse);
    scale[c] = static_cast<float>(product);
    shift[c] = static_cast<float>(factor * double{beta[c]} + (added - double{mean[c]}) * product);
  }
}

void BatchNormToSums(int64_t channels, double pixels, const float* mean, const float* variance,
                     double* sums) {
  sums[2 * channels] = pixels;
  for (int64_t c = 0; c < channels; ++c) {
    sums[c] = sums[channels + c] = 0;
    if (pixels == 0) continue;
    sums[c] = double{mean[c]} * pixels;
    // Sum of squares: the variance is the mean square minus the squared mean.
    sums[channels + c] = (double{variance[c]} + double{mean[c]} * double{mean[c]}) * pixels;
  }
}

void BatchNormFromSums(int64_t channels, const double* sums, float* mean, float* variance) {
  const double pixels = sums[2 * channels];
  if (pixels == 0) return;
  for (int64_t c = 0; c < channels; ++c) {
    const double average = sums[c] / pixels;
    mean[c] = static_cast<float>(average);
    variance[c] =
        static_cast<float>(std::max(0.0, sums[channels + c] / pixels - average * average));
  }
}

void BatchNormRunning(const BatchNormMomentum& momentum, const float* active, const float* mean,
                      const float* variance, float* running_mean, float* running_variance) {
  if (active != nullptr && *active == 0) return;
  const double pixels =
      momentum.shared_pixels != nullptr ? *momentum.shared_pixels : momentum.pixels;
  if (pixels == 0) return;
  const double unbiased = pixels > 1 ? pixels / (pixels - 1) : 1;
  const auto take_in = [&](double value, float& running) {
    running = static_cast<float>(running + momentum.momentum * (value - double{running}));
  };
  for (int64_t c = 0; c < momentum.channels; ++c) {
    take_in(double{mean[c]}, running_mean[c]);
    take_in(double{variance[c]} * unbiased, running_variance[c]);
  }
}

void BatchNormPrepare(const BatchNormShape& shape, const void* x,
                      const BatchNormTraining& training) {
  PrepareInSteps<BatchNormStatistics, BatchNormRunning, BatchNormScale>(shape, x, training);
}

// One bit per element.
size_t BatchNormMaskBytes(const BatchNormShape& shape) {
  if (shape.pool || shape.activation == Activation::kNone) return 0;
  return static_cast<size_t>(shape.pixels() * shape.channels + 7) / 8;
}

// The index within the window, as for 2x2 pooling.
size_t BatchNormPoolBytes(const BatchNormShape& shape) {
  if (!shape.pool || shape.pools_2x2()) return 0;
  return static_cast<size_t>(shape.out_pixels() * shape.channels);
}

void BatchNormApply(const BatchNormShape& shape, const void* x, const float* scale,
                    const float* shift, const BatchNormAddend& addend, void* y, uint8_t* choice) {
  const auto activated = [&](int64_t i) {
    const int64_t c = i % shape.channels;
    double sum = addend.data != nullptr ? LoadElement(shape.type, addend.data, i) : 0.0;
    if (addend.scale != nullptr) sum = sum * double{addend.scale[c]} + double{addend.shift[c]};
    const double scaled = LoadElement(shape.type, x, i) * double{scale[c]} + double{shift[c]};
    return Activated(shape.activation, scaled + sum);
  };
  for (int64_t out = 0; out < shape.out_pixels() * shape.channels; ++out) {
    if (!shape.pool) {
      StoreElement(shape.type, activated(out), y, out);
      if (choice != nullptr && shape.activation != Activation::kNone) {
        if (out % 8 == 0) choice[out / 8] = 0;
        const bool passes = GradientPasses(shape.activation, LoadElement(shape.type, y, out));
        choice[out / 8] |= static_cast<uint8_t>((passes ? 1 : 0) << out % 8);
      }
      continue;
    }
    int64_t largest = -1;
    double value = 0;
    for (int64_t cell = 0; cell < shape.pool_kernel * shape.pool_kernel; ++cell) {
      const int64_t at = UnderWindow(shape, out, cell);
      if (at < 0) continue;
      const double candidate = activated(at);
      if (largest >= 0 && !(candidate > value) && !std::isnan(candidate)) continue;
      largest = cell;
      value = candidate;
    }
    StoreElement(shape.type, value, y, out);
    if (choice != nullptr) choice[out] = value <= 0 ? kNoChoice : static_cast<uint8_t>(largest);
  }
}

namespace {

void BackwardParameters(const BatchNormShape& shape, const BatchNormGradient& gradient,
                        float* dgamma, float* dbeta, void* dz) {
  const std::vector<double> dy = UnpooledGradient(shape, gradient);
  for (int64_t c = 0; c < shape.channels; ++c) {
    double sum = 0;
    double product = 0;
    for (int64_t i = c; i < static_cast<int64_t>(dy.size()); i += shape.channels) {
      sum += dy[i];
      product += dy[i] * Normalised(shape, gradient, i);
    }
    dbeta[c] = static_cast<float>(sum);
    dgamma[c] = static_cast<float>(product);
  }
  if (dz == nullptr) return;
  if (!shape.pool) {
    for (size_t i = 0; i < dy.size(); ++i) StoreElement(shape.type, dy[i], dz, i);
    return;
  }
  for (int64_t out = 0; out < shape.out_pixels() * shape.channels; ++out) {
    const bool passes = gradient.choice[out] != kNoChoice;
    StoreElement(shape.type, passes ? GradientAt(shape, gradient, out) : 0.0, dz, out);
  }
}

void BackwardData(const BatchNormShape& shape, const BatchNormGradient& gradient,
                  const float* dgamma, const float* dbeta, void* dx) {
  const std::vector<double> dy = UnpooledGradient(shape, gradient);
  for (int64_t i = 0; i < static_cast<int64_t>(dy.size()); ++i) {
    const int64_t c = i % shape.channels;
    const double centred =
        dy[i] - (double{dbeta[c]} + Normalised(shape, gradient, i) * double{dgamma[c]}) /
                    PixelsOf(gradient);
    StoreElement(shape.type, double{gradient.scale[c]} * centred, dx, i);
  }
}

}  // namespace

void BatchNormBackwardParameters(const BatchNormShape& shape, const BatchNormGradient& gradient,
                                 float* dgamma, float* dbeta, void* dz) {
  BackwardParametersInTurn<BackwardParameters>(shape, gradient, dgamma, dbeta, dz);
}

void BatchNormBackwardData(const BatchNormShape& shape, const BatchNormGradient& gradient,
                           const float* dgamma, const float* dbeta, void* dx) {
  BackwardDataInTurn<BackwardData>(shape, gradient, dgamma, dbeta, dx);
}

}  // namespace muster::kernels::reference
