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

void AddStrategyFields(FieldTable& table) {
  constexpr Range kBucketBytes = Between(1, 0x1p32);
  table.merge(FieldTable{
      {"StrategySpec.name",
       {.help = "Parallelism strategy. ddp: each rank computes its share of every batch. dp: one "
                "rank drives all devices of its node. hybrid: dp within each node, gradients "
                "all-reduced between nodes. pipeline: each rank holds a stage of the model.",
        .default_value = "ddp",
        .words = {"ddp", "dp", "hybrid", "pipeline"}}},
      {"StrategySpec.bucket_bytes",
       {.help = "Size of a gradient bucket; a bucket is all-reduced while backward continues.",
        .default_value = "25MiB",
        .unit = "bytes",
        .range = kBucketBytes}},
      {"StrategySpec.first_bucket_bytes",
       {.help = "Size of the first bucket, small so that communication starts early.",
        .default_value = "1MiB",
        .unit = "bytes",
        .range = kBucketBytes}},
      {"StrategySpec.hierarchical",
       {.help = "Whether gradients are summed within each node first, then between nodes. auto: on "
                "CPUs if nodes have several ranks; NCCL decides by itself.",
        .default_value = "auto",
        .words = {"auto", "on", "off"}}},
      {"StrategySpec.shard_optimizer",
       {.help = "Shard the optimizer state over the ranks (ZeRO stage 1): less memory, the same "
                "result.",
        .only_with = {"name", {"ddp"}}}},
      {"StrategySpec.pipeline",
       {.help = "How the model is split into stages.",
        .default_value = "{}",
        .only_with = {"name", {"pipeline"}}}},
      {"PipelineSpec.stages",
       {.help = "Number of stages; further ranks are replicas.",
        .computed_default = "the number of ranks",
        .range = AtLeast(1)}},
      {"PipelineSpec.schedule",
       {.help = "Pipeline schedule. sequential: one stage computes at a time. gpipe: forward of "
                "all micro-batches, then backward. 1f1b: one forward, one backward, using less "
                "memory.",
        .default_value = "1f1b",
        .words = {"1f1b", "gpipe", "sequential"}}},
      {"PipelineSpec.micro_batches",
       {.help = "Micro-batches per step and replica.",
        .computed_default = "4 per stage; 1 with sequential",
        .range = Between(1, 1 << 16)}},
      {"PipelineSpec.cuts",
       {.help = "First layer of the second and each later stage, by the names that explain-plan "
                "prints.",
        .computed_default = "balanced by costs measured at the start"}},
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

void AddLearningFields(FieldTable& table) {
  AddStrategyFields(table);
  table.merge(FieldTable{
      {"OptimizerSpec.name",
       {.help = "Optimizer.", .default_value = "sgd", .words = {"sgd", "adamw", "lars"}}},
      {"OptimizerSpec.learning_rate",
       {.help = "Learning rate after warmup.", .required = true, .range = Above(0)}},
      {"OptimizerSpec.momentum",
       {.help = "Momentum.", .range = FromZeroBelowOne(), .only_with = {"name", {"sgd", "lars"}}}},
      {"OptimizerSpec.weight_decay",
       {.help = "Weight decay. Decoupled from the gradient with adamw, added to it otherwise.",
        .range = AtLeast(0)}},
      {"OptimizerSpec.nesterov",
       {.help = "Nesterov momentum; requires momentum.", .only_with = {"name", {"sgd"}}}},
      {"OptimizerSpec.beta1",
       {.help = "Decay of the running mean of gradients.",
        .default_value = "0.9",
        .range = BetweenZeroAndOne(),
        .only_with = {"name", {"adamw"}}}},
      {"OptimizerSpec.beta2",
       {.help = "Decay of the running mean of squared gradients.",
        .default_value = "0.999",
        .range = BetweenZeroAndOne(),
        .only_with = {"name", {"adamw"}}}},
      {"OptimizerSpec.epsilon",
       {.help = "Value added to the denominator.",
        .default_value = "1e-8",
        .range = Above(0),
        .only_with = {"name", {"adamw"}}}},
      {"OptimizerSpec.trust_coefficient",
       {.help = "Trust coefficient: step length of a layer relative to the norm of its weights.",
        .default_value = "0.001",
        .range = Above(0),
        .only_with = {"name", {"lars"}}}},
      {"OptimizerSpec.exclude_norm_and_bias",
       {.help =
            "Exclude biases and batch norm parameters from weight decay and from the layer-wise "
            "adaptation of lars."}},
      {"OptimizerSpec.clip_norm",
       {.help =
            "Maximum global norm of the gradients; larger ones are scaled down. 0: no clipping.",
        .range = AtLeast(0)}},
      {"ScheduleSpec.name",
       {.help = "Schedule. cosine decays to 0 at the last step; step multiplies the rate by factor "
                "at milestones.",
        .default_value = "constant",
        .words = {"constant", "cosine", "step"}}},
      {"ScheduleSpec.warmup_epochs",
       {.help = "Linear warmup from 0.", .unit = "epochs", .range = Between(0, kMaxEpochs)}},
      {"ScheduleSpec.milestones",
       {.help = "Epochs after which the rate is multiplied by factor, in ascending order.",
        .unit = "epochs",
        .range = {.low = 0, .high = kMaxEpochs, .low_excluded = true},
        .max_items = 1000,
        .only_with = {"name", {"step"}}}},
      {"ScheduleSpec.every_epochs",
       {.help = "Interval at which the rate is multiplied by factor, instead of milestones.",
        .unit = "epochs",
        .range = {.low = 0, .high = kMaxEpochs, .low_excluded = true},
        .only_with = {"name", {"step"}}}},
      {"ScheduleSpec.factor",
       {.help = "Factor applied to the rate.",
        .default_value = "0.1",
        .range = Above(0),
        .only_with = {"name", {"step"}}}},
      {"ObjectiveSpec.name",
       {.help = "Loss function. nt_xent is self-supervised: it contrasts two views of each image "
                "with all other images.",
        .default_value = "cross_entropy",
        .words = {"cross_entropy", "nt_xent"}}},
      {"ObjectiveSpec.label_smoothing",
       {.help = "Share of the target probability that is spread evenly over all classes.",
        .range = FromZeroBelowOne(),
        .only_with = {"name", {"cross_entropy"}}}},
      {"ObjectiveSpec.temperature",
       {.help = "Temperature that similarities are divided by.",
        .default_value = "0.5",
        .range = Above(0),
        .only_with = {"name", {"nt_xent"}}}},
      {"ObjectiveSpec.negatives",
       {.help = "Images that serve as negatives: those of all ranks, of the node, or of the rank.",
        .default_value = "global",
        .words = {"global", "node", "rank"},
        .only_with = {"name", {"nt_xent"}}}},
      {"ObjectiveSpec.projection",
       {.help = "Widths of the projection head, linear layers with ReLU between them, which "
                "replaces the last layer of the model.",
        .computed_default = "the head's input width, then 128",
        .range = Between(1, kMaxWidth),
        .max_items = 16,
        .only_with = {"name", {"nt_xent"}}}},
  });
}

}  // namespace muster::spec
