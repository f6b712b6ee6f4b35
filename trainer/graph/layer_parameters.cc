#include "trainer/graph/layer_parameters.h"

#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "trainer/graph/parameter_layouts.h"

namespace muster::nn {
namespace {

using kernels::ConvolutionShape;

// Initial values of a convolution or linear layer.
struct Initials {
  Initial weight;
  Initial bias;
};

template <typename L>
Initials InitialsOf(const L& layer, const ConvolutionShape& shape) {
  switch (layer.initialization) {
    case Initialization::kKaimingNormalFanOut: {
      // PyTorch's fan out ignores groups.
      const double fan_out = static_cast<double>(shape.out_channels * shape.kernel * shape.kernel);
      return {.weight = Initial::Normal(std::sqrt(2.0 / fan_out))};
    }
    case Initialization::kNormal:
      return {.weight = Initial::Normal(layer.standard_deviation)};
    case Initialization::kPyTorchDefault:
      break;
  }
  // PyTorch's kaiming_uniform(a = sqrt(5)) has the same bound as its bias.
  const Initial uniform = Initial::Uniform(1.0 / std::sqrt(static_cast<double>(shape.fan_in())));
  return {.weight = uniform, .bias = uniform};
}

template <typename L>
Operation::Range AddWeights(const std::string& name, const L& layer,
                            std::vector<int64_t> weight_shape, TensorLayout layout,
                            ConvolutionParts& parts, FlatLayout& flat) {
  const Initials initials = InitialsOf(layer, parts.shape);
  const size_t begin = flat.elements();
  parts.weight_offset =
      flat.Add(name + ".weight", std::move(weight_shape), initials.weight, std::move(layout));
  if (layer.bias) {
    const int64_t channels = parts.shape.out_channels;
    parts.bias_offset = flat.Add(name + ".bias", {channels}, initials.bias, PlainLayout(channels));
  }
  return {begin, flat.elements()};
}

}  // namespace

Operation::Range AddParameters(const std::string& name, const Conv2d& layer,
                               ConvolutionParts& parts, FlatLayout& flat) {
  const ConvolutionShape& shape = parts.shape;
  return AddWeights(
      name, layer,
      {shape.out_channels, shape.in_channels / shape.groups, shape.kernel, shape.kernel},
      ConvolutionLayout(parts.convolution.get()), parts, flat);
}

Operation::Range AddParameters(const std::string& name, const Linear& layer,
                               const ImageShape& flattened_from, ConvolutionParts& parts,
                               FlatLayout& flat) {
  const ConvolutionShape& shape = parts.shape;
  return AddWeights(
      name, layer, {shape.out_channels, shape.in_channels},
      OverFlattened(flattened_from, shape.out_channels, ConvolutionLayout(parts.convolution.get())),
      parts, flat);
}

Operation::Range AddParameters(const std::string& name, int64_t channels, BatchNormParts& parts,
                               FlatLayout& flat, FlatLayout& buffers) {
  const auto add = [&](FlatLayout& to, const char* what, double value) {
    return to.Add(absl::StrCat(name, ".", what), {channels}, Initial::Constant(value),
                  PlainLayout(channels));
  };
  const size_t begin = flat.elements();
  parts.weight_offset = add(flat, "weight", parts.layer.zero_weight ? 0 : 1);
  parts.bias_offset = add(flat, "bias", 0);
  parts.running_mean_offset = add(buffers, "running_mean", 0);
  parts.running_variance_offset = add(buffers, "running_var", 1);
  return {begin, flat.elements()};
}

}  // namespace muster::nn
