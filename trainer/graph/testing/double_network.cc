#include "trainer/graph/testing/double_network.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <variant>

#include "absl/strings/str_cat.h"
#include "kernels/dropout.h"

namespace muster::nn {
namespace {

using Values = std::vector<double>;

// NHWC.
struct Images {
  ImageShape shape;
  int64_t samples = 0;
  Values values;

  Images(const ImageShape& shape_in, int64_t samples_in)
      : shape(shape_in),
        samples(samples_in),
        values(samples_in * shape_in.height * shape_in.width * shape_in.channels, 0.0) {}

  double& at(int64_t sample, int64_t h, int64_t w, int64_t c) {
    return values[((sample * shape.height + h) * shape.width + w) * shape.channels + c];
  }
  double at(int64_t sample, int64_t h, int64_t w, int64_t c) const {
    return const_cast<Images*>(this)->at(sample, h, w, c);
  }
  bool Inside(int64_t h, int64_t w) const {
    return h >= 0 && h < shape.height && w >= 0 && w < shape.width;
  }
};

// Sets each element of y to value(sample, row, column, channel).
template <typename Value>
void ForEach(Images& y, const Value& value) {
  double* at = y.values.data();
  for (int64_t sample = 0; sample < y.samples; ++sample) {
    for (int64_t h = 0; h < y.shape.height; ++h) {
      for (int64_t w = 0; w < y.shape.width; ++w) {
        for (int64_t c = 0; c < y.shape.channels; ++c) *at++ = value(sample, h, w, c);
      }
    }
  }
}

// Evaluates one layer on its inputs and writes its output to y.
struct Evaluation {
  const DoubleNetwork::Parameters& parameters;
  const StepContext& step;
  const Node& node;
  uint32_t id;
  const Images& x;
  const Images* second;  // second input of Add
  const ImageShape& flattened_from;
  Images& y;

  const Values* Find(const char* what) const {
    const auto at = parameters.find(absl::StrCat(node.name, ".", what));
    return at == parameters.end() ? nullptr : &at->second;
  }

  void operator()(const Conv2d& layer) const {
    const Values& weight = *Find("weight");
    const Values* bias = Find("bias");
    const int64_t in_group = x.shape.channels / layer.groups;
    const int64_t out_group = layer.out_channels / layer.groups;
    ForEach(y, [&](int64_t sample, int64_t h, int64_t w, int64_t c) {
      double sum = bias != nullptr ? (*bias)[c] : 0;
      for (int64_t i = 0; i < in_group; ++i) {
        for (int64_t kh = 0; kh < layer.kernel; ++kh) {
          for (int64_t kw = 0; kw < layer.kernel; ++kw) {
            const int64_t from_h = h * layer.stride + kh - layer.padding;
            const int64_t from_w = w * layer.stride + kw - layer.padding;
            if (!x.Inside(from_h, from_w)) continue;
            sum += weight[((c * in_group + i) * layer.kernel + kh) * layer.kernel + kw] *
                   x.at(sample, from_h, from_w, c / out_group * in_group + i);
          }
        }
      }
      return sum;
    });
  }

  void operator()(const Linear& layer) const {
    const Values& weight = *Find("weight");
    const Values* bias = Find("bias");
    const int64_t channels = flattened_from.channels;
    const int64_t pixels = flattened_from.height * flattened_from.width;
    ForEach(y, [&](int64_t sample, int64_t, int64_t, int64_t out) {
      double sum = bias != nullptr ? (*bias)[out] : 0;
      for (int64_t pixel = 0; pixel < pixels; ++pixel) {
        for (int64_t c = 0; c < channels; ++c) {
          sum += weight[(out * channels + c) * pixels + pixel] *
                 x.values[(sample * pixels + pixel) * channels + c];
        }
      }
      return sum;
    });
  }

  void operator()(const BatchNorm2d& layer) const {
    const Values& weight = *Find("weight");
    const Values& bias = *Find("bias");
    const int64_t channels = x.shape.channels;
    const double pixels = static_cast<double>(x.values.size()) / static_cast<double>(channels);
    for (int64_t c = 0; c < channels; ++c) {
      double mean = 0;
      double variance = 0;
      for (size_t i = c; i < x.values.size(); i += channels) mean += x.values[i] / pixels;
      for (size_t i = c; i < x.values.size(); i += channels) {
        variance += (x.values[i] - mean) * (x.values[i] - mean) / pixels;
      }
      const double scale = weight[c] / std::sqrt(variance + layer.epsilon);
      for (size_t i = c; i < x.values.size(); i += channels) {
        y.values[i] = (x.values[i] - mean) * scale + bias[c];
      }
    }
  }

  void operator()(const Relu&) const {
    Map([](double value) { return std::max(value, 0.0); });
  }
  void operator()(const Relu6&) const {
    Map([](double value) { return std::clamp(value, 0.0, 6.0); });
  }

  void operator()(const MaxPool2d& layer) const {
    ForEach(y, [&](int64_t sample, int64_t h, int64_t w, int64_t c) {
      double largest = -std::numeric_limits<double>::infinity();
      for (int64_t kh = 0; kh < layer.kernel; ++kh) {
        for (int64_t kw = 0; kw < layer.kernel; ++kw) {
          const int64_t from_h = h * layer.stride + kh - layer.padding;
          const int64_t from_w = w * layer.stride + kw - layer.padding;
          if (x.Inside(from_h, from_w)) {
            largest = std::max(largest, x.at(sample, from_h, from_w, c));
          }
        }
      }
      return largest;
    });
  }

  void operator()(const AvgPool2d& layer) const {
    Average(layer.kernel, layer.kernel, layer.stride);
  }
  void operator()(const AdaptiveAvgPool2d&) const { Average(x.shape.height, x.shape.width, 1); }
  void operator()(const Flatten&) const { y.values = x.values; }

  void operator()(const Dropout& layer) const {
    const float probability = static_cast<float>(layer.probability);
    const kernels::PhiloxKey key = kernels::DerivePhiloxKey(step.seed, step.step);
    const size_t columns = x.values.size() / x.samples;
    for (size_t i = 0; i < x.values.size(); ++i) {
      const uint64_t sample = step.first_sample + i / columns;
      const uint32_t column = static_cast<uint32_t>(i % columns);
      const kernels::PhiloxCounter words =
          kernels::Philox4x32(kernels::DropoutCounter(id, sample, column / 4), key);
      const bool dropped = kernels::Uniform01(words[column % 4]) < probability;
      y.values[i] = dropped ? 0 : x.values[i] / (1 - double{probability});
    }
  }

  // A dropped branch outputs zeros.
  void operator()(const StochasticDepth& layer) const {
    const kernels::PhiloxCounter words =
        kernels::Philox4x32({0, 0, 0, id}, kernels::DerivePhiloxKey(step.seed, step.step));
    const bool dropped = double{kernels::Uniform01(words[0])} < layer.probability;
    Map([&](double value) { return dropped ? 0 : value / (1 - layer.probability); });
  }

  void operator()(const Add&) const {
    for (size_t i = 0; i < x.values.size(); ++i) y.values[i] = x.values[i] + second->values[i];
  }

  template <typename Function>
  void Map(const Function& function) const {
    std::transform(x.values.begin(), x.values.end(), y.values.begin(), function);
  }

  void Average(int64_t kernel_height, int64_t kernel_width, int64_t stride) const {
    ForEach(y, [&](int64_t sample, int64_t h, int64_t w, int64_t c) {
      double sum = 0;
      for (int64_t kh = 0; kh < kernel_height; ++kh) {
        for (int64_t kw = 0; kw < kernel_width; ++kw) {
          sum += x.at(sample, h * stride + kh, w * stride + kw, c);
        }
      }
      return sum / static_cast<double>(kernel_height * kernel_width);
    });
  }
};

}  // namespace

DoubleNetwork::DoubleNetwork(const Graph& graph) : graph_(graph), shapes_(*InferShapes(graph)) {}

std::vector<double> DoubleNetwork::Logits(const Parameters& parameters, const float* input,
                                          int64_t samples, const StepContext& step) const {
  Images batch(graph_.input, samples);
  std::copy_n(input, batch.values.size(), batch.values.begin());
  std::vector<Images> outputs;
  outputs.reserve(graph_.nodes.size());
  const auto output_of = [&](NodeId node) -> const Images& {
    return node == kInput ? batch : outputs[node];
  };
  for (size_t i = 0; i < graph_.nodes.size(); ++i) {
    const Node& node = graph_.nodes[i];
    Images y(shapes_[i].image, samples);
    const NodeId from = node.inputs[0];
    const Evaluation evaluation = {
        .parameters = parameters,
        .step = step,
        .node = node,
        .id = static_cast<uint32_t>(i),
        .x = output_of(from),
        .second = node.inputs.size() > 1 ? &output_of(node.inputs[1]) : nullptr,
        .flattened_from = from == kInput ? graph_.input : shapes_[from].flattened_from,
        .y = y};
    std::visit(evaluation, node.layer);
    outputs.push_back(std::move(y));
  }
  return outputs.back().values;
}

double DoubleNetwork::Loss(const Parameters& parameters, const float* input, const int32_t* labels,
                           int64_t samples, double smoothing, const StepContext& step) const {
  const std::vector<double> logits = Logits(parameters, input, samples, step);
  const int64_t classes = static_cast<int64_t>(logits.size()) / samples;
  double loss = 0;
  for (int64_t sample = 0; sample < samples; ++sample) {
    const double* z = logits.data() + sample * classes;
    const double largest = *std::max_element(z, z + classes);
    double sum = 0;
    for (int64_t c = 0; c < classes; ++c) sum += std::exp(z[c] - largest);
    const double log_sum = largest + std::log(sum);
    for (int64_t c = 0; c < classes; ++c) {
      const double target =
          smoothing / static_cast<double>(classes) + (c == labels[sample] ? 1 - smoothing : 0);
      loss += target * (log_sum - z[c]);
    }
  }
  return loss;
}

}  // namespace muster::nn
