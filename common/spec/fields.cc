#include "common/spec/fields.h"

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
       {.text = "What carries the ranks' collectives. auto takes shm inside a node, gloo between "
                "nodes of one rank, and hierarchical otherwise.",
        .words = {"auto", "shm", "gloo", "hierarchical", "loopback"},
        .words_elsewhere = {"nccl", "mpi"}}},
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
       {.text = "CPU threads that a rank computes with; a command finds it in OMP_NUM_THREADS."}},
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
      {"TrainSpec.image_size", {.text = "Pixels of a side. The data set's own."}},
      {"TrainSpec.optimizer", {.text = "How the weights are updated."}},
      {"TrainSpec.schedule", {.text = "How the learning rate changes."}},
      {"TrainSpec.precision",
       {.text = "What is computed in low precision. O0 is float32 throughout.",
        .words = {"O0"},
        .words_elsewhere = {"O1", "O2", "O3"}}},
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
       {.text = "Keep every step's loss in the job's summary, at most 100,000; --losses prints "
                "them."}},
      {"ModelSpec.name",
       {.text = "Which model.",
        .words = {"small_cnn", "mlp"},
        .words_elsewhere = {"resnet18", "resnet34", "resnet50", "resnet101", "mobilenet_v2"}}},
      {"ModelSpec.batch_norm", {.text = "Batch norm behind each convolution of small_cnn."}},
      {"ModelSpec.dropout",
       {.text = "The share of activations dropped before the last linear layer; from 0 to below "
                "1."}},
      {"ModelSpec.hidden", {.text = "The widths of the hidden layers of mlp."}},
      {"DatasetSpec.name", {.text = "Which data set.", .words = {"fashion_mnist", "mnist"}}},
      {"DatasetSpec.path",
       {.text = "The folder with its files, with an absolute path that holds on every node."}},
      {"OptimizerSpec.name", {.text = "Which optimizer.", .words = {"sgd"}}},
      {"OptimizerSpec.learning_rate", {.text = "The learning rate, after the warm-up."}},
      {"OptimizerSpec.momentum", {.text = "From 0 to below 1."}},
      {"OptimizerSpec.weight_decay", {.text = "How much of a weight is taken off it in a step."}},
      {"ScheduleSpec.name",
       {.text = "How the learning rate changes. cosine goes to zero at the last step.",
        .words = {"constant", "cosine"}}},
      {"ScheduleSpec.warmup_epochs", {.text = "So long it rises from zero, evenly."}},
      {"StrategySpec.name",
       {.text = "How the work is divided. ddp gives each rank its share of every batch.",
        .words = {"ddp"},
        .words_elsewhere = {"dp", "hybrid", "pipeline"}}},
      {"StrategySpec.bucket_bytes",
       {.text = "Gradients are summed over the ranks in pieces of this size, while the rest is "
                "still being computed."}},
      {"StrategySpec.first_bucket_bytes",
       {.text = "The size of the first piece, which is to be ready early."}},
      {"ObjectiveSpec.name",
       {.text = "Which loss.", .words = {"cross_entropy"}, .words_elsewhere = {"nt_xent"}}},
      {"ObjectiveSpec.label_smoothing",
       {.text = "The share of the target that is spread over all classes; from 0 to below 1."}},
      {"AugmentSpec.crop_padding",
       {.text = "Pixels of zeros put around an image before a random crop back to size. 0: none."}},
      {"AugmentSpec.flip", {.text = "Mirror every second image, on average, left to right."}},
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
