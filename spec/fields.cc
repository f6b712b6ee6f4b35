#include "spec/fields.h"

#include <map>

#include "absl/strings/strip.h"

namespace muster::spec {
namespace {

using Table = std::map<absl::string_view, FieldNotes>;

// By message and field, without the package.
Table MakeTable() {
  return {
      {"JobSpec.name",
       {.text =
            "The job's name; its id begins with it. Lower-case letters, digits and '-', at most "
            "63.",
        .computed_default = "the model's and data set's names, or the program's"}},
      {"JobSpec.train",
       {.text = "A model to train with the built-in trainer. A job has train or command."}},
      {"JobSpec.command",
       {.text = "A program and its arguments, started once per rank. It finds its place in RANK, "
                "WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT and the other variables that "
                "PyTorch's launcher sets; no shell reads it."}},
      {"JobSpec.env", {.text = "Variables added to the environment of every rank."}},
      {"JobSpec.workdir",
       {.text = "Where the ranks run: an absolute path on the node.",
        .computed_default = "a directory of the rank's own"}},
      {"JobSpec.resources", {.text = "How many ranks, and what each of them gets."}},
      {"JobSpec.backend",
       {.text = "What carries the ranks' collectives. auto takes nccl between GPUs; between "
                "processors shm inside a node, gloo between nodes of one rank, and hierarchical "
                "otherwise. mpi is for programs that mpirun starts, not for jobs.",
        .words = {"auto", "shm", "gloo", "hierarchical", "nccl", "loopback"},
        .words_elsewhere = {"mpi"}}},
      {"JobSpec.failure_timeout",
       {.text = "A rank or node that is silent for this long is lost. The inner time-outs derive "
                "from it."}},
      {"JobSpec.grace_period", {.text = "From SIGTERM to SIGKILL when ranks are stopped."}},
      {"JobSpec.on_lost_coordinator",
       {.text = "What the ranks do when the coordinator is away. continue, or {stop_after: 10m}."}},
      {"JobSpec.restart", {.text = "What follows a failure."}},
      {"JobSpec.time_limit",
       {.text = "The job is stopped this long after its first start.", .computed_default = "none"}},
      {"JobSpec.priority", {.text = "Higher goes first; from -1000 to 1000."}},
      {"NodeCount.min", {.text = "The fewest nodes the job starts with."}},
      {"NodeCount.max", {.text = "The most nodes that it uses."}},
      {"Resources.nodes", {.text = "How many nodes. A number, or {min: 1, max: 4}."}},
      {"Resources.ranks_per_node", {.text = "Processes on each node."}},
      {"Resources.device",
       {.text = "What a rank computes with. auto takes a GPU where there is one.",
        .words = {"auto", "cpu", "gpu"}}},
      {"Resources.devices_per_rank", {.text = "Slots that a rank occupies: a number, or all."}},
      {"Resources.threads_per_rank",
       {.text =
            "CPU threads that a rank computes with, with dp and hybrid on each of its devices; a "
            "command finds it in OMP_NUM_THREADS."}},
      {"Resources.share_device",
       {.text = "Lets ranks of the job share one GPU, where nodes offer the same one: for tests."}},
      {"LostCoordinatorPolicy.stop_after",
       {.text = "Stop when the coordinator has been away for this long.",
        .computed_default = "never"}},
      {"RestartPolicy.max", {.text = "How often the job is started again after a failure."}},
      {"TrainSpec.model", {.text = "What is trained."}},
      {"TrainSpec.dataset", {.text = "What it is trained on."}},
      {"TrainSpec.epochs",
       {.text = "Passes over the data; fractions are fine. With max_steps, whichever ends first."}},
      {"TrainSpec.max_steps", {.text = "Steps at most. With epochs, whichever ends first."}},
      {"TrainSpec.global_batch",
       {.text = "Samples in one step, over all ranks; at least one for each rank."}},
      {"TrainSpec.image_size",
       {.text = "Pixels of a side, to which the images are resized.",
        .computed_default = "the data set's own: 28, or 32 for CIFAR; 224 for folders"}},
      {"TrainSpec.optimizer", {.text = "How the weights are updated."}},
      {"TrainSpec.schedule", {.text = "How the learning rate changes."}},
      {"TrainSpec.precision",
       {.text =
            "What is computed in low precision. O0 is float32 throughout; in O1 convolutions and "
            "matrix products multiply in low precision; in O2 values between layers are kept "
            "in it too; in O3 also the weights.",
        .words = {"O0", "O1", "O2", "O3"}}},
      {"TrainSpec.strategy", {.text = "How the work is divided among the ranks."}},
      {"TrainSpec.objective", {.text = "The loss."}},
      {"TrainSpec.augment", {.text = "What is done to the images at random."}},
      {"TrainSpec.seed", {.text = "All that is random follows from it, on any number of ranks."}},
      {"TrainSpec.drop_last", {.text = "Leave out an epoch's last batch when it is not full."}},
      {"TrainSpec.init_from",
       {.text = "A .safetensors file on the node to start from, with an absolute path."}},
      {"TrainSpec.checkpoint", {.text = "Where and how often the training's state is kept."}},
      {"TrainSpec.loader", {.text = "How batches are made ready."}},
      {"TrainSpec.evaluate_every_epochs",
       {.text = "Measure the accuracy on the test set after every so many epochs. 0: only at the "
                "end, where it is always done."}},
      {"TrainSpec.record_losses",
       {.text = "Keep every step's loss, and when it ended, in the job's summary, at most 100,000; "
                "--losses prints them."}},
      {"TrainSpec.sync_batch_norm",
       {.text = "Batch norm's statistics are of all ranks' rows. Otherwise each rank's own."}},
      {"TrainSpec.accumulation_steps",
       {.text = "Each rank computes its share of a step's batch in so many parts, whose gradients "
                "are added up: less memory, the same step but for batch norm."}},
      {"TrainSpec.ema",
       {.text = "Keep an exponential moving average of parameters and running statistics, which "
                "evaluation uses."}},
      {"TrainSpec.tensorboard", {.text = "Event files for TensorBoard, written by rank 0."}},
      {"TrainSpec.init_exclude",
       {.text =
            "Parameters whose names begin with one of these are not taken from init_from, as in "
            "[fc.]."}},
      {"TrainSpec.mixed_precision", {.text = "How O1, O2 and O3 compute in low precision."}},
      {"TrainSpec.cuda_graphs",
       {.text = "Whether a GPU's step is recorded once and launched as a graph: where all of it "
                "can be, or never.",
        .words = {"auto", "never"}}},
      {"MixedPrecisionSpec.dtype",
       {.text = "The low precision.", .words = {"bfloat16", "float16"}}},
      {"MixedPrecisionSpec.gradient_dtype",
       {.text = "What gradients are summed over the ranks in. auto is float32 at O0 and O1, and "
                "where all ranks are on one node; the dtype at O2 and O3 otherwise.",
        // The types first: they are what a short name is told of.
        .words = {"float32", "bfloat16", "float16", "auto"}}},
      {"MixedPrecisionSpec.loss_scale",
       {.text = "The loss is multiplied by a scale before backward, so that small gradients "
                "survive in float16."}},
      {"LossScaleSpec.initial",
       {.text = "The scale at the start.",
        .computed_default = "65536 with float16, otherwise none"}},
      {"LossScaleSpec.growth_interval",
       {.text = "The scale grows after so many steps without overflow."}},
      {"LossScaleSpec.growth_factor", {.text = "What the scale is multiplied by as it grows."}},
      {"LossScaleSpec.backoff_factor",
       {.text = "What the scale is multiplied by after an overflow; below 1."}},
      {"LossScaleSpec.fixed",
       {.text = "The scale stays as it is. Steps that overflow are skipped all the same."}},
      {"EmaSpec.decay", {.text = "The share of the average that stays in a step; below 1."}},
      {"TensorBoardSpec.dir",
       {.text =
            "A directory on the node, with an absolute path. {node} in it stands for the node's "
            "name."}},
      {"TensorBoardSpec.every_steps", {.text = "Write scalars every so many steps."}},
      {"ModelSpec.name",
       {.text = "Which model. None with layers.",
        .words = {"small_cnn", "mlp", "resnet18", "resnet34", "resnet50", "resnet101",
                  "mobilenet_v2"}}},
      {"ModelSpec.batch_norm", {.text = "Batch norm behind each convolution of small_cnn."}},
      {"ModelSpec.dropout",
       {.text = "The share of activations dropped before the last linear layer; from 0 to below 1. "
                "Of small_cnn, mlp and mobilenet_v2.",
        .computed_default = "0; 0.2 for mobilenet_v2"}},
      {"ModelSpec.hidden", {.text = "The widths of the hidden layers of mlp."}},
      {"ModelSpec.stochastic_depth",
       {.text = "The last residual block is left out of a step with this probability, the others "
                "with one that rises evenly from zero with their depth; from 0 to below 1. Of the "
                "resnets and mobilenet_v2."}},
      {"ModelSpec.zero_init_residual",
       {.text = "The last batch norm of each residual block starts with zero, so that at first the "
                "block passes its input on. Of the resnets."}},
      {"ModelSpec.small_stem",
       {.text =
            "The first convolution is 3x3 with stride 1 in place of 7x7 with stride 2, for small "
            "images. Of the resnets."}},
      {"ModelSpec.stem_pool",
       {.text = "Max pooling follows the first convolution of the resnets.",
        .computed_default = "true, with small_stem false"}},
      {"ModelSpec.layers",
       {.text = "A network of your own in place of name, layer by layer, in the terms of torch.nn. "
                "A layer without options is a bare word: [flatten, relu, linear]."}},
      {"LayerSpec.conv2d", {.text = "A convolution with a square kernel."}},
      {"LayerSpec.batch_norm2d", {.text = "Batch norm over rows and pixels, by channel."}},
      {"LayerSpec.relu", {.text = "max(x, 0)."}},
      {"LayerSpec.relu6", {.text = "min(max(x, 0), 6)."}},
      {"LayerSpec.max_pool2d", {.text = "The largest value under a square window."}},
      {"LayerSpec.avg_pool2d", {.text = "The mean under a square window."}},
      {"LayerSpec.adaptive_avg_pool2d", {.text = "The mean of each channel, to 1x1."}},
      {"LayerSpec.flatten", {.text = "One vector per row, as a linear layer takes it."}},
      {"LayerSpec.linear", {.text = "A linear layer; it takes a flattened input."}},
      {"LayerSpec.dropout", {.text = "Elements become zero at random in training."}},
      {"LayerSpec.residual",
       {.text =
            "Adds the output of its layers to that of its shortcut, both from the same input."}},
      {"Conv2dSpec.out_channels", {.text = "Channels of the output."}},
      {"Conv2dSpec.kernel", {.text = "Pixels of a side of the kernel."}},
      {"Conv2dSpec.stride", {.text = "Pixels from one place of the kernel to the next."}},
      {"Conv2dSpec.padding", {.text = "Pixels of zeros at each side."}},
      {"Conv2dSpec.groups",
       {.text = "Parts that the channels are divided into, each convolved by itself. As many as "
                "channels: a depthwise convolution."}},
      {"Conv2dSpec.bias", {.text = "Whether a bias is added."}},
      {"BatchNorm2dSpec.epsilon", {.text = "Added to the variance."}},
      {"BatchNorm2dSpec.momentum",
       {.text = "The share of the newest batch in the running statistics."}},
      {"PoolSpec.kernel", {.text = "Pixels of a side of the window."}},
      {"PoolSpec.stride",
       {.text = "Pixels from one window to the next.", .computed_default = "the kernel"}},
      {"PoolSpec.padding",
       {.text = "Pixels at each side that never win, at most half the kernel. Of max_pool2d."}},
      {"LinearSpec.out_features",
       {.text = "Width of the output. 0: as many as the data set has classes."}},
      {"LinearSpec.bias", {.text = "Whether a bias is added."}},
      {"DropoutSpec.probability", {.text = "Of an element to become zero; below 1."}},
      {"ResidualSpec.layers", {.text = "The branch whose output is added."}},
      {"ResidualSpec.shortcut",
       {.text = "What the input goes through on its own way to the sum.",
        .computed_default = "the input as it is"}},
      {"ResidualSpec.drop_probability",
       {.text = "Of the branch being left out of a step; from 0 to below 1."}},
      {"DatasetSpec.name",
       {.text = "Which data set. An image_folder has a folder of images for each class.",
        .words = {"fashion_mnist", "mnist", "cifar10", "cifar100", "image_folder"}}},
      {"DatasetSpec.path",
       {.text = "The folder with its files, with an absolute path that holds on every node. Of an "
                "image_folder: train/CLASS/*.jpg and val/CLASS/*.jpg (or test/)."}},
      {"DatasetSpec.mean",
       {.text = "By channel, of pixels scaled to 0..1; subtracted from them.",
        .computed_default = "the data set's own; for folders that of ImageNet"}},
      {"DatasetSpec.standard_deviation",
       {.text = "By channel, of pixels scaled to 0..1; they are divided by it.",
        .computed_default = "the data set's own; for folders that of ImageNet"}},
      {"DatasetSpec.center_crop",
       {.text = "Evaluation takes the central square with this share of the shorter side; at most "
                "1.",
        .computed_default = "1; 0.875 for folders"}},
      {"DatasetSpec.resident",
       {.text =
            "Whether a GPU keeps the training images in its own memory: where they take at most "
            "a quarter of what is free there, or never.",
        .words = {"auto", "never"}}},
      {"OptimizerSpec.name", {.text = "Which optimizer.", .words = {"sgd", "adamw", "lars"}}},
      {"OptimizerSpec.learning_rate", {.text = "The learning rate, after the warm-up."}},
      {"OptimizerSpec.momentum", {.text = "From 0 to below 1. Of sgd and lars."}},
      {"OptimizerSpec.weight_decay",
       {.text =
            "How much of a weight is taken off it in a step. Of adamw: apart from the gradient, "
            "of the others: as a part of it."}},
      {"OptimizerSpec.nesterov", {.text = "Nesterov's momentum. Of sgd."}},
      {"OptimizerSpec.beta1",
       {.text = "Decay of the gradients' running mean; below 1. Of adamw.",
        .computed_default = "0.9"}},
      {"OptimizerSpec.beta2",
       {.text = "Decay of the running mean of their squares; below 1. Of adamw.",
        .computed_default = "0.999"}},
      {"OptimizerSpec.epsilon", {.text = "Added to the denominator. Of adamw."}},
      {"OptimizerSpec.trust_coefficient",
       {.text = "How far a layer's step goes for the length of its weights. Of lars."}},
      {"OptimizerSpec.exclude_norm_and_bias",
       {.text = "Neither weight decay nor the adaptation of lars for biases and the parameters of "
                "batch norm."}},
      {"OptimizerSpec.clip_norm",
       {.text = "Gradients whose norm, of all together, is above this are scaled down to it. 0: no "
                "clipping."}},
      {"ScheduleSpec.name",
       {.text = "How the learning rate changes. cosine goes to zero at the last step, step "
                "multiplies it by a factor now and then.",
        .words = {"constant", "cosine", "step"}}},
      {"ScheduleSpec.warmup_epochs", {.text = "So long it rises from zero, evenly."}},
      {"ScheduleSpec.milestones",
       {.text = "Epochs after which the rate is multiplied by factor, rising. Of step."}},
      {"ScheduleSpec.every_epochs",
       {.text = "In place of milestones: the rate is multiplied by factor every so many epochs. Of "
                "step."}},
      {"ScheduleSpec.factor", {.text = "What the rate is multiplied by. Of step."}},
      {"StrategySpec.name",
       {.text =
            "How the work is divided. ddp gives each rank its share of every batch. dp: one rank "
            "drives all devices of its node, with a thread for each. hybrid: so on every node, "
            "and gradients are summed over the nodes. pipeline: each rank has a part of the model.",
        .words = {"ddp", "dp", "hybrid", "pipeline"}}},
      {"StrategySpec.bucket_bytes",
       {.text = "Gradients are summed over the ranks in pieces of this size, while the rest is "
                "still being computed."}},
      {"StrategySpec.first_bucket_bytes",
       {.text = "The size of the first piece, which is to be ready early."}},
      {"StrategySpec.hierarchical",
       {.text = "Whether gradients are summed inside each node first and then between nodes. auto: "
                "CPUs do so where nodes have several ranks, and NCCL chooses by itself.",
        .words = {"auto", "on", "off"}}},
      {"StrategySpec.shard_optimizer",
       {.text = "Each rank keeps the optimizer's state of its share of the parameters alone and "
                "updates that share: less memory, the same training. Of ddp."}},
      {"StrategySpec.pipeline", {.text = "How the model is cut. Of pipeline."}},
      {"PipelineSpec.stages",
       {.text = "So many ranks hold a part of the model each; ranks beyond that are replicas.",
        .computed_default = "as many as ranks"}},
      {"PipelineSpec.schedule",
       {.text = "sequential: one stage computes at a time. gpipe: forward of all micro-batches, "
                "then backward. 1f1b: a forward and a backward in turn, with less memory.",
        .words = {"1f1b", "gpipe", "sequential"}}},
      {"PipelineSpec.micro_batches",
       {.text = "Each replica's share of a batch goes through the stages in so many parts.",
        .computed_default = "4 for each stage; 1 with sequential"}},
      {"PipelineSpec.cuts",
       {.text = "Layers that the second and every later stage begins with, as explain-plan names "
                "them.",
        .computed_default = "where the costs balance, measured at the start"}},
      {"ObjectiveSpec.name",
       {.text = "Which loss. nt_xent learns without labels: two views of an image against all "
                "others.",
        .words = {"cross_entropy", "nt_xent"}}},
      {"ObjectiveSpec.label_smoothing",
       {.text = "The share of the target that is spread over all classes; from 0 to below 1. Of "
                "cross_entropy."}},
      {"ObjectiveSpec.temperature", {.text = "What similarities are divided by. Of nt_xent."}},
      {"ObjectiveSpec.negatives",
       {.text =
            "Whose images an image is compared with: of all ranks, of its node's, or of its own "
            "rank. Of nt_xent.",
        .words = {"global", "node", "rank"}}},
      {"ObjectiveSpec.projection",
       {.text =
            "Widths of the linear layers that take the place of the model's last one, with ReLU "
            "between them. Of nt_xent.",
        .computed_default = "one as wide as its input, then 128"}},
      {"AugmentSpec.crop_padding",
       {.text = "Pixels of zeros put around an image before a random crop back to size. 0: none."}},
      {"AugmentSpec.flip", {.text = "Mirror every second image, on average, left to right."}},
      {"AugmentSpec.random_resized_crop",
       {.text = "A part of the image with random area and shape, resized to image_size. Not with "
                "crop_padding."}},
      {"AugmentSpec.random_erasing",
       {.text = "A random rectangle of the normalised image becomes zero."}},
      {"RandomResizedCropSpec.min_scale",
       {.text = "The smallest part, as a share of the image's area."}},
      {"RandomResizedCropSpec.max_scale",
       {.text = "The largest part, as a share of the image's area; at most 1."}},
      {"RandomResizedCropSpec.min_ratio", {.text = "The smallest width for a height."}},
      {"RandomResizedCropSpec.max_ratio", {.text = "The largest width for a height."}},
      {"RandomErasingSpec.probability", {.text = "Of an image to be erased at all; at most 1."}},
      {"RandomErasingSpec.min_scale",
       {.text = "The smallest rectangle, as a share of the image's area."}},
      {"RandomErasingSpec.max_scale",
       {.text = "The largest rectangle, as a share of the image's area; at most 1."}},
      {"RandomErasingSpec.min_ratio", {.text = "The smallest height for a width."}},
      {"RandomErasingSpec.max_ratio", {.text = "The largest height for a width."}},
      {"CheckpointSpec.dir",
       {.text =
            "A directory on the node, with an absolute path. {node} in it stands for the node's "
            "name."}},
      {"CheckpointSpec.every_steps",
       {.text = "Write one every so many steps. 0: only at the end."}},
      {"CheckpointSpec.keep", {.text = "How many of the newest are kept."}},
      {"LoaderSpec.threads", {.text = "Threads of a rank that make batches ready."}},
      {"LoaderSpec.prefetch", {.text = "Batches that are ready ahead."}},
  };
}

}  // namespace

const FieldNotes& NotesOn(const google::protobuf::FieldDescriptor& field) {
  static const Table& table = *new Table(MakeTable());
  static const FieldNotes& none = *new FieldNotes();
  const auto entry = table.find(absl::StripPrefix(field.full_name(), "muster.v1."));
  return entry == table.end() ? none : entry->second;
}

}  // namespace muster::spec
