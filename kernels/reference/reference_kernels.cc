// The operations of KernelTable as their definitions read: no fusion, no vectors, sums in double.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/kernel_table.h"

namespace muster::kernels {
namespace reference {
namespace {

void BatchNormStatistics(const BatchNormShape& shape, const float* x, float* mean,
                         float* variance) {
  const double pixels = static_cast<double>(shape.pixels());
  for (int64_t c = 0; c < shape.channels; ++c) {
    double sum = 0;
    for (int64_t p = 0; p < shape.pixels(); ++p) sum += x[p * shape.channels + c];
    double squares = 0;
    for (int64_t p = 0; p < shape.pixels(); ++p) {
      const double distance = x[p * shape.channels + c] - sum / pixels;
      squares += distance * distance;
    }
    mean[c] = static_cast<float>(sum / pixels);
    variance[c] = static_cast<float>(squares / pixels);
  }
}

// Which of the square's four values is the largest, by lines, the first among equals.
int LargestOfSquare(const double (&values)[4]) {
  return static_cast<int>(std::max_element(values, values + 4) - values);
}

// Element of the NHWC tensor at one of the four pixels under a pooled pixel.
int64_t UnderSquare(int64_t height, int64_t width, int64_t channels, int64_t row, int64_t h,
                    int64_t w, int64_t c, int corner) {
  return ((row * height + 2 * h + corner / 2) * width + 2 * w + corner % 2) * channels + c;
}

// Calls visit(row, h, w, c, pooled element) for each element of the pooled tensor.
template <typename Visit>
void ForEachPooled(int64_t rows, int64_t height, int64_t width, int64_t channels,
                   const Visit& visit) {
  int64_t out = 0;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t h = 0; h < height / 2; ++h) {
      for (int64_t w = 0; w < width / 2; ++w) {
        for (int64_t c = 0; c < channels; ++c) visit(row, h, w, c, out++);
      }
    }
  }
}

void BatchNormApply(const BatchNormShape& shape, const float* x, const float* scale,
                    const float* shift, float* y, uint8_t* choice) {
  const auto normalised = [&](int64_t i) {
    const int64_t c = i % shape.channels;
    return double{x[i]} * double{scale[c]} + double{shift[c]};
  };
  if (!shape.pool) {
    for (int64_t i = 0; i < shape.pixels() * shape.channels; ++i) {
      const double value = normalised(i);
      y[i] = static_cast<float>(shape.relu && value < 0 ? 0 : value);
    }
    return;
  }
  ForEachPooled(shape.rows, shape.height, shape.width, shape.channels,
                [&](int64_t row, int64_t h, int64_t w, int64_t c, int64_t out) {
                  double values[4];
                  for (int corner = 0; corner < 4; ++corner) {
                    values[corner] = normalised(UnderSquare(shape.height, shape.width,
                                                            shape.channels, row, h, w, c, corner));
                  }
                  const int largest = LargestOfSquare(values);
                  const bool alive = values[largest] > 0;
                  y[out] = alive ? static_cast<float>(values[largest]) : 0.0f;
                  if (choice != nullptr) choice[out] = static_cast<uint8_t>(alive ? largest : 4);
                });
}

// The gradient of the normalised values, before ReLU and pooling: like x.
std::vector<double> UnpooledGradient(const BatchNormShape& shape,
                                     const BatchNormGradient& gradient) {
  std::vector<double> dy(shape.pixels() * shape.channels, 0.0);
  if (shape.pool) {
    ForEachPooled(shape.rows, shape.height, shape.width, shape.channels,
                  [&](int64_t row, int64_t h, int64_t w, int64_t c, int64_t out) {
                    if (gradient.choice[out] == 4) return;
                    dy[UnderSquare(shape.height, shape.width, shape.channels, row, h, w, c,
                                   gradient.choice[out])] = gradient.dy[out];
                  });
    return dy;
  }
  for (size_t i = 0; i < dy.size(); ++i) {
    const int64_t c = static_cast<int64_t>(i) % shape.channels;
    const double value =
        double{gradient.x[i]} * double{gradient.scale[c]} + double{gradient.shift[c]};
    if (!shape.relu || value > 0) dy[i] = gradient.dy[i];
  }
  return dy;
}

double Normalised(const BatchNormGradient& gradient, int64_t i, int64_t c) {
  return (double{gradient.x[i]} - double{gradient.mean[c]}) * double{gradient.inverse_deviation[c]};
}

void BatchNormBackwardParameters(const BatchNormShape& shape, const BatchNormGradient& gradient,
                                 float* dgamma, float* dbeta) {
  const std::vector<double> dy = UnpooledGradient(shape, gradient);
  for (int64_t c = 0; c < shape.channels; ++c) {
    double sum = 0;
    double product = 0;
    for (int64_t i = c; i < static_cast<int64_t>(dy.size()); i += shape.channels) {
      sum += dy[i];
      product += dy[i] * Normalised(gradient, i, c);
    }
    dbeta[c] = static_cast<float>(sum);
    dgamma[c] = static_cast<float>(product);
  }
}

void BatchNormBackwardData(const BatchNormShape& shape, const BatchNormGradient& gradient,
                           const float* dgamma, const float* dbeta, float* dx) {
  const std::vector<double> dy = UnpooledGradient(shape, gradient);
  const double pixels = static_cast<double>(shape.pixels());
  for (int64_t i = 0; i < static_cast<int64_t>(dy.size()); ++i) {
    const int64_t c = i % shape.channels;
    dx[i] = static_cast<float>(double{gradient.scale[c]} *
                               (dy[i] - double{dbeta[c]} / pixels -
                                Normalised(gradient, i, c) * double{dgamma[c]} / pixels));
  }
}

void MaxPoolForward(const PoolShape& shape, const float* x, float* y, uint8_t* choice) {
  ForEachPooled(
      shape.rows, shape.height, shape.width, shape.channels,
      [&](int64_t row, int64_t h, int64_t w, int64_t c, int64_t out) {
        double values[4];
        for (int corner = 0; corner < 4; ++corner) {
          values[corner] =
              x[UnderSquare(shape.height, shape.width, shape.channels, row, h, w, c, corner)];
        }
        int largest = LargestOfSquare(values);
        y[out] = static_cast<float>(values[largest]);
        if (shape.relu && values[largest] <= 0) {
          y[out] = 0;
          largest = 4;
        }
        if (choice != nullptr) choice[out] = static_cast<uint8_t>(largest);
      });
}

void MaxPoolBackward(const PoolShape& shape, const float* dy, const uint8_t* choice, float* dx) {
  std::fill_n(dx, shape.rows * shape.height * shape.width * shape.channels, 0.0f);
  ForEachPooled(
      shape.rows, shape.height, shape.width, shape.channels,
      [&](int64_t row, int64_t h, int64_t w, int64_t c, int64_t out) {
        if (choice[out] == 4) return;
        dx[UnderSquare(shape.height, shape.width, shape.channels, row, h, w, c, choice[out])] =
            dy[out];
      });
}

void ReluForward(size_t count, const float* x, float* y) {
  for (size_t i = 0; i < count; ++i) y[i] = x[i] < 0 ? 0.0f : x[i];
}

void ReluBackward(size_t count, const float* y, const float* dy, float* dx) {
  for (size_t i = 0; i < count; ++i) dx[i] = y[i] > 0 ? dy[i] : 0.0f;
}

void Dropout(const DropoutMask& mask, int64_t rows, int64_t columns, const float* x, float* y) {
  for (int64_t i = 0; i < rows * columns; ++i) {
    const uint64_t row = mask.first_row + static_cast<uint64_t>(i / columns);
    const uint32_t column = static_cast<uint32_t>(i % columns);
    const float uniform =
        Uniform01(Philox4x32(DropoutCounter(mask, row, column / 4), mask.key)[column % 4]);
    const double kept = double{x[i]} / (1.0 - double{mask.probability});
    y[i] = uniform < mask.probability ? 0.0f : static_cast<float>(kept);
  }
}

CrossEntropyResult SoftmaxCrossEntropy(const CrossEntropyOptions& options, const float* logits,
                                       const int32_t* labels, float* dlogits) {
  CrossEntropyResult result;
  for (int64_t row = 0; row < options.rows; ++row) {
    const float* logit = logits + row * options.classes;
    const int64_t best = std::max_element(logit, logit + options.classes) - logit;
    double sum = 0;
    for (int64_t c = 0; c < options.classes; ++c) sum += std::exp(double{logit[c]} - logit[best]);
    for (int64_t c = 0; c < options.classes; ++c) {
      const double log_probability = double{logit[c]} - logit[best] - std::log(sum);
      const double target = (c == labels[row] ? 1.0 - options.label_smoothing : 0.0) +
                            options.label_smoothing / static_cast<double>(options.classes);
      result.loss_sum -= target * log_probability;
      if (dlogits != nullptr) {
        dlogits[row * options.classes + c] =
            static_cast<float>(double{options.scale} * (std::exp(log_probability) - target));
      }
    }
    result.correct += best == labels[row] ? 1 : 0;
  }
  return result;
}

void Normalize(int64_t pixels, int64_t channels, const uint8_t* x, const float* scale,
               const float* shift, float* y) {
  for (int64_t i = 0; i < pixels * channels; ++i) {
    const int64_t c = i % channels;
    y[i] = static_cast<float>(double{scale[c]} * x[i] + double{shift[c]});
  }
}

// Calls visit(tap line, tap column, input pixel) for each tap that lies inside the image.
template <typename Visit>
void ForEachTap(const DirectConvolutionShape& shape, int64_t row, int64_t h, int64_t w,
                const Visit& visit) {
  for (int64_t r = 0; r < 3; ++r) {
    for (int64_t s = 0; s < 3; ++s) {
      const int64_t in_h = h + r - 1;
      const int64_t in_w = w + s - 1;
      if (in_h < 0 || in_h >= shape.height || in_w < 0 || in_w >= shape.width) continue;
      visit(r * 3 + s, (row * shape.height + in_h) * shape.width + in_w);
    }
  }
}

void DirectConvolutionForward(const DirectConvolutionShape& shape, const float* x,
                              const float* weights, const float* bias, float* y, float* scratch) {
  const int64_t outs = shape.out_channels;
  const int64_t ins = shape.in_channels;
  for (int64_t pixel = 0; pixel < shape.rows * shape.height * shape.width; ++pixel) {
    const int64_t w = pixel % shape.width;
    const int64_t h = pixel / shape.width % shape.height;
    const int64_t row = pixel / shape.width / shape.height;
    for (int64_t o = 0; o < outs; ++o) {
      double sum = bias[o];
      ForEachTap(shape, row, h, w, [&](int64_t tap, int64_t in) {
        for (int64_t i = 0; i < ins; ++i) {
          sum += double{x[in * ins + i]} * double{weights[(tap * ins + i) * outs + o]};
        }
      });
      y[pixel * outs + o] = static_cast<float>(shape.relu && sum < 0 ? 0 : sum);
    }
  }
}

void DirectConvolutionBackwardWeights(const DirectConvolutionShape& shape, const float* x,
                                      const float* dy, float* dweights, float* dbias,
                                      float* scratch) {
  const int64_t outs = shape.out_channels;
  const int64_t ins = shape.in_channels;
  std::vector<double> weight_sums(9 * ins * outs, 0.0);
  std::vector<double> bias_sums(outs, 0.0);
  for (int64_t pixel = 0; pixel < shape.rows * shape.height * shape.width; ++pixel) {
    const int64_t w = pixel % shape.width;
    const int64_t h = pixel / shape.width % shape.height;
    const int64_t row = pixel / shape.width / shape.height;
    for (int64_t o = 0; o < outs; ++o) {
      const double gradient = dy[pixel * outs + o];
      bias_sums[o] += gradient;
      ForEachTap(shape, row, h, w, [&](int64_t tap, int64_t in) {
        for (int64_t i = 0; i < ins; ++i) {
          weight_sums[(tap * ins + i) * outs + o] += gradient * double{x[in * ins + i]};
        }
      });
    }
  }
  std::copy(weight_sums.begin(), weight_sums.end(), dweights);
  std::copy(bias_sums.begin(), bias_sums.end(), dbias);
}

void SgdStep(const SgdOptions& options, float* parameters, float* momentum, const float* gradients,
             size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const double gradient = double{gradients[i]} + double{options.weight_decay} * parameters[i];
    const double velocity =
        gradient + (momentum != nullptr ? double{options.momentum} * momentum[i] : 0.0);
    if (momentum != nullptr) momentum[i] = static_cast<float>(velocity);
    parameters[i] = static_cast<float>(parameters[i] - double{options.learning_rate} * velocity);
  }
}

constexpr KernelTable kKernels = {
    .name = "reference",
    .batch_norm_statistics = BatchNormStatistics,
    .batch_norm_apply = BatchNormApply,
    .batch_norm_backward_parameters = BatchNormBackwardParameters,
    .batch_norm_backward_data = BatchNormBackwardData,
    .max_pool_forward = MaxPoolForward,
    .max_pool_backward = MaxPoolBackward,
    .relu_forward = ReluForward,
    .relu_backward = ReluBackward,
    .dropout = Dropout,
    .softmax_cross_entropy = SoftmaxCrossEntropy,
    .normalize = Normalize,
    .direct_convolution_forward = DirectConvolutionForward,
    .direct_convolution_backward_weights = DirectConvolutionBackwardWeights,
    .sgd_step = SgdStep,
};

}  // namespace
}  // namespace reference

const KernelTable& ReferenceKernels() { return reference::kKernels; }

}  // namespace muster::kernels
