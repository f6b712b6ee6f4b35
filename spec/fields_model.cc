#include "spec/field_table.h"

namespace muster::spec {
namespace {

const Condition& ResNets() {
  static const Condition& resnets =
      *new Condition{"name", {"resnet18", "resnet34", "resnet50", "resnet101"}};
  return resnets;
}

void AddLayerFields(FieldTable& table) {
  table.merge(FieldTable{
      {"LayerSpec.conv2d", {.help = "2D convolution with a square kernel."}},
      {"LayerSpec.batch_norm2d", {.help = "Batch normalization per channel."}},
      {"LayerSpec.relu", {.help = "max(x, 0)."}},
      {"LayerSpec.relu6", {.help = "min(max(x, 0), 6)."}},
      {"LayerSpec.max_pool2d", {.help = "Maximum over a square window."}},
      {"LayerSpec.avg_pool2d", {.help = "Mean over a square window."}},
      {"LayerSpec.adaptive_avg_pool2d", {.help = "Mean of each channel; the output is 1x1."}},
      {"LayerSpec.flatten", {.help = "One vector per sample, as a linear layer expects."}},
      {"LayerSpec.linear", {.help = "Fully connected layer; expects a flattened input."}},
      {"LayerSpec.dropout", {.help = "Zeroes random elements during training."}},
      {"LayerSpec.residual",
       {.help = "Adds the output of layers to that of shortcut, both applied to the same input."}},
      {"Conv2dSpec.out_channels",
       {.help = "Output channels.", .required = true, .range = Between(1, kMaxWidth)}},
      {"Conv2dSpec.kernel",
       {.help = "Side of the kernel.",
        .required = true,
        .unit = "pixels",
        .range = Between(1, kMaxKernel)}},
      {"Conv2dSpec.stride",
       {.help = "Stride of the kernel.",
        .default_value = "1",
        .unit = "pixels",
        .range = Between(1, kMaxKernel)}},
      {"Conv2dSpec.padding",
       {.help = "Zero padding on each side.", .unit = "pixels", .range = Between(0, kMaxKernel)}},
      {"Conv2dSpec.groups",
       {.help = "Groups of channels that are convolved separately. As many groups as channels: a "
                "depthwise convolution.",
        .default_value = "1",
        .range = Between(1, kMaxWidth)}},
      {"Conv2dSpec.bias", {.help = "Whether the layer has a bias.", .default_value = "true"}},
      {"BatchNorm2dSpec.epsilon",
       {.help = "Value added to the variance.",
        .default_value = "1e-5",
        .range = AboveZeroToOne()}},
      {"BatchNorm2dSpec.momentum",
       {.help = "Weight of the newest batch in the running statistics.",
        .default_value = "0.1",
        .range = AboveZeroToOne()}},
      {"PoolSpec.kernel",
       {.help = "Side of the window; at most 15 for max_pool2d.",
        .required = true,
        .unit = "pixels",
        .range = Between(1, kMaxKernel)}},
      {"PoolSpec.stride",
       {.help = "Stride of the window.",
        .computed_default = "the kernel",
        .unit = "pixels",
        .range = Between(1, kMaxKernel)}},
      {"PoolSpec.padding",
       {.help = "Padding on each side, ignored by the maximum; at most half the kernel. For "
                "max_pool2d.",
        .unit = "pixels",
        .range = Between(0, kMaxKernel)}},
      {"LinearSpec.out_features",
       {.help = "Output width. 0: the number of classes of the dataset.",
        .range = Between(0, kMaxWidth)}},
      {"LinearSpec.bias", {.help = "Whether the layer has a bias.", .default_value = "true"}},
      {"DropoutSpec.probability",
       {.help = "Probability that an element is zeroed.",
        .required = true,
        .range = BetweenZeroAndOne()}},
      {"ResidualSpec.layers", {.help = "Branch whose output is added.", .required = true}},
      {"ResidualSpec.shortcut",
       {.help = "Layers on the shortcut path.", .computed_default = "identity"}},
      {"ResidualSpec.drop_probability",
       {.help = "Probability that the branch is skipped in a step.", .range = FromZeroBelowOne()}},
  });
}

}  // namespace

void AddModelFields(FieldTable& table) {
  AddLayerFields(table);
  table.merge(FieldTable{
      {"ModelSpec.name",
       {.help = "Built-in model. Leave it out with layers.",
        .words = {"small_cnn", "mlp", "resnet18", "resnet34", "resnet50", "resnet101",
                  "mobilenet_v2"}}},
      {"ModelSpec.batch_norm",
       {.help = "Batch normalization after each convolution.",
        .default_value = "true",
        .only_with = {"name", {"small_cnn"}}}},
      {"ModelSpec.dropout",
       {.help = "Dropout probability before the last linear layer.",
        .computed_default = "0; 0.2 for mobilenet_v2",
        .range = FromZeroBelowOne(),
        .only_with = {"name", {"small_cnn", "mlp", "mobilenet_v2"}}}},
      {"ModelSpec.hidden",
       {.help = "Widths of the hidden layers.",
        .default_value = "[256, 128]",
        .range = Between(1, kMaxWidth),
        .max_items = 64,
        .only_with = {"name", {"mlp"}}}},
      {"ModelSpec.stochastic_depth",
       {.help = "Probability that the last residual block is skipped in a step. It rises linearly "
                "from 0 with the depth of the block.",
        .range = FromZeroBelowOne(),
        .only_with = {"name", {"resnet18", "resnet34", "resnet50", "resnet101", "mobilenet_v2"}}}},
      {"ModelSpec.zero_init_residual",
       {.help = "Initialize the last batch norm of each residual block with zero, so that the "
                "block starts as the identity.",
        .only_with = ResNets()}},
      {"ModelSpec.small_stem",
       {.help = "Use a 3x3 first convolution with stride 1 instead of 7x7 with stride 2, for small "
                "images.",
        .only_with = ResNets()}},
      {"ModelSpec.stem_pool",
       {.help = "Max pooling after the first convolution.",
        .computed_default = "true, unless small_stem is set",
        .only_with = ResNets()}},
      {"ModelSpec.layers",
       {.help = "Custom network instead of name, layer by layer, with the layer names of torch.nn. "
                "A layer without options is written as its name, as in [flatten, relu, linear]."}},
  });
}

}  // namespace muster::spec
