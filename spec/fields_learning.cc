#include "spec/field_table.h"

namespace muster::spec {
namespace {

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
