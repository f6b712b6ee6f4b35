#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/spec/fields.h"
#include "common/spec/nearest.h"
#include "common/spec/problems.h"
#include "common/spec/spec.h"

namespace muster::spec {
namespace {

using Words = std::vector<std::string>;

constexpr double kMaxEpochs = 1e6;
constexpr uint32_t kMaxGlobalBatch = 1 << 24;
constexpr uint32_t kMaxThreads = 1024;
constexpr uint32_t kMaxRestarts = 1000;
constexpr uint32_t kMaxHiddenLayers = 64;
constexpr uint32_t kMaxHiddenWidth = 65536;
constexpr uint64_t kMaxBucketBytes = uint64_t{1} << 32;
constexpr uint32_t kMaxCheckpointsKept = 1000;
constexpr int32_t kPriorityBound = 1000;
constexpr uint32_t kBuiltInImageSize = 28;
constexpr size_t kMaxEnvironment = 10000;

bool IsName(absl::string_view name) {
  if (name.empty() || name.size() > limits::kNameLength) return false;
  if (name.front() == '-' || name.back() == '-') return false;
  for (const unsigned char c : name) {
    if (!absl::ascii_islower(c) && !absl::ascii_isdigit(c) && c != '-') return false;
  }
  return true;
}

// What a rank finds its place by; a job that set these would break its own rendezvous.
bool IsReserved(absl::string_view variable) {
  static const Words& reserved = *new Words{
      "RANK",
      "WORLD_SIZE",
      "LOCAL_RANK",
      "LOCAL_WORLD_SIZE",
      "GROUP_RANK",
      "NODE_RANK",
      "GROUP_WORLD_SIZE",
      "ROLE_RANK",
      "ROLE_WORLD_SIZE",
      "ROLE_NAME",
      "MASTER_ADDR",
      "MASTER_PORT",
      "CUDA_VISIBLE_DEVICES",
  };
  if (absl::StartsWith(variable, "MUSTER_") || absl::StartsWith(variable, "TORCHELASTIC_")) {
    return true;
  }
  for (const std::string& name : reserved) {
    if (variable == name) return true;
  }
  return false;
}

// One of the words that common/spec/fields.cc gives the field.
void RequireWord(absl::string_view path, const google::protobuf::Message& message,
                 const std::string& name, Problems& problems) {
  const auto& field = *message.GetDescriptor()->FindFieldByName(name);
  const FieldNotes& notes = NotesOn(field);
  problems.RequireWord(path, message.GetReflection()->GetString(message, &field), notes.words,
                       notes.words_elsewhere);
}

void CheckEnvironment(const v1::JobSpec& spec, Problems& problems) {
  if (spec.env_size() > static_cast<int>(kMaxEnvironment)) {
    problems.Add("env", absl::StrCat("has more than ", kMaxEnvironment, " variables"));
  }
  for (const auto& entry : spec.env()) {
    const std::string path = absl::StrCat("env ", Quoted(entry.first));
    problems.RequireText(path, entry.first);
    if (entry.first.empty() || absl::StrContains(entry.first, '=')) {
      problems.Add(path, "is not a variable's name");
    } else if (IsReserved(entry.first)) {
      problems.Add(path, "is set by Muster");
    }
    problems.RequireText(path, entry.second);
  }
}

void CheckCommand(const v1::JobSpec& spec, Problems& problems) {
  if (spec.command(0).empty()) problems.Add("command", "the program's name is empty");
  for (int i = 0; i < spec.command_size(); ++i) {
    problems.RequireText(absl::StrCat("command[", i, "]"), spec.command(i));
  }
}

void CheckResources(const v1::JobSpec& spec, Problems& problems) {
  const v1::Resources& resources = spec.resources();
  const v1::NodeCount& nodes = resources.nodes();
  if (nodes.min() == 0) {
    problems.Add("resources.nodes", "must be at least 1");
  } else if (nodes.max() < nodes.min()) {
    problems.Add("resources.nodes",
                 absl::StrCat("max ", nodes.max(), " is below min ", nodes.min()));
  }
  problems.Require(nodes.max() <= limits::kNodes, "resources.nodes",
                   absl::StrCat("at most ", limits::kNodes));
  problems.Require(
      resources.ranks_per_node() >= 1 && resources.ranks_per_node() <= limits::kSlotsPerNode,
      "resources.ranks_per_node", absl::StrCat("from 1 to ", limits::kSlotsPerNode));
  if (MaxWorldSize(spec) > limits::kRanksPerJob) {
    problems.Add("resources", absl::StrCat(MaxWorldSize(spec), " ranks; a job has at most ",
                                           limits::kRanksPerJob));
  }
  if (spec.has_train()) {
    problems.RequireWord("resources.device", resources.device(), Words{"auto", "cpu"},
                         Words{"gpu"});
  } else {
    RequireWord("resources.device", resources, "device", problems);
  }
  uint32_t devices;
  const bool number = absl::SimpleAtoi(resources.devices_per_rank(), &devices);
  problems.Require(resources.devices_per_rank() == "all" ||
                       (number && devices >= 1 && devices <= limits::kSlotsPerNode),
                   "resources.devices_per_rank",
                   absl::StrCat("'all' or from 1 to ", limits::kSlotsPerNode, ", not ",
                                Quoted(resources.devices_per_rank())));
  if (resources.devices_per_rank() == "all" && resources.ranks_per_node() > 1) {
    problems.Add("resources.devices_per_rank",
                 "'all' leaves no device for a second rank: ranks_per_node must be 1");
  }
  problems.Require(resources.threads_per_rank() >= 1 && resources.threads_per_rank() <= kMaxThreads,
                   "resources.threads_per_rank", absl::StrCat("from 1 to ", kMaxThreads));
}

void CheckBackend(const v1::JobSpec& spec, Problems& problems) {
  RequireWord("backend", spec, "backend", problems);
  if (spec.backend() == "shm" && spec.resources().nodes().max() > 1) {
    problems.Add("backend",
                 "shm connects the ranks of one node; between nodes: gloo, hierarchical");
  }
  if (spec.backend() == "loopback" && MaxWorldSize(spec) > 1) {
    problems.Add("backend", "loopback serves a single rank");
  }
}

void CheckPolicies(const v1::JobSpec& spec, Problems& problems) {
  problems.RequireDuration("failure_timeout", spec.failure_timeout(), /*zero_allowed=*/false);
  problems.RequireDuration("grace_period", spec.grace_period(), /*zero_allowed=*/true);
  if (spec.on_lost_coordinator().has_stop_after()) {
    problems.RequireDuration("on_lost_coordinator.stop_after",
                             spec.on_lost_coordinator().stop_after(), /*zero_allowed=*/false);
  }
  if (spec.has_time_limit()) {
    problems.RequireDuration("time_limit", spec.time_limit(), /*zero_allowed=*/false);
  }
  problems.Require(spec.restart().max() <= kMaxRestarts, "restart.max",
                   absl::StrCat("at most ", kMaxRestarts));
  problems.RequireRange("priority", spec.priority(), -kPriorityBound, kPriorityBound);
}

void CheckModel(const v1::ModelSpec& model, Problems& problems) {
  RequireWord("train.model.name", model, "name", problems);
  problems.Require(model.dropout() >= 0 && model.dropout() < 1, "train.model.dropout",
                   "from 0 to below 1");
  if (model.name() != "small_cnn" && model.batch_norm()) {
    problems.Add("train.model.batch_norm", "is an option of small_cnn");
  }
  if (model.name() != "mlp" && !model.hidden().empty()) {
    problems.Add("train.model.hidden", "is an option of mlp");
  }
  problems.Require(model.hidden_size() <= static_cast<int>(kMaxHiddenLayers), "train.model.hidden",
                   absl::StrCat("at most ", kMaxHiddenLayers, " widths"));
  for (const uint32_t width : model.hidden()) {
    if (width < 1 || width > kMaxHiddenWidth) {
      problems.Add("train.model.hidden",
                   absl::StrCat("widths must be from 1 to ", kMaxHiddenWidth, ", not ", width));
    }
  }
}

void CheckLength(const v1::TrainSpec& train, Problems& problems) {
  problems.RequireRange("train.epochs", train.epochs(), 0, kMaxEpochs);
  if (train.epochs() == 0 && train.max_steps() == 0) {
    problems.Add("train", "epochs or max_steps is missing: how long to train");
  }
  const v1::ScheduleSpec& schedule = train.schedule();
  RequireWord("train.schedule.name", schedule, "name", problems);
  problems.RequireRange("train.schedule.warmup_epochs", schedule.warmup_epochs(), 0, kMaxEpochs);
  if (train.epochs() > 0 && schedule.warmup_epochs() > train.epochs()) {
    problems.Add("train.schedule.warmup_epochs", "is longer than train.epochs");
  }
}

void CheckOptimizer(const v1::OptimizerSpec& optimizer, Problems& problems) {
  RequireWord("train.optimizer.name", optimizer, "name", problems);
  if (optimizer.learning_rate() == 0) {
    problems.Add("train.optimizer.learning_rate", "is missing");
  } else {
    problems.Require(optimizer.learning_rate() > 0 && std::isfinite(optimizer.learning_rate()),
                     "train.optimizer.learning_rate", "above 0");
  }
  problems.Require(optimizer.momentum() >= 0 && optimizer.momentum() < 1,
                   "train.optimizer.momentum", "from 0 to below 1");
  problems.Require(optimizer.weight_decay() >= 0 && std::isfinite(optimizer.weight_decay()),
                   "train.optimizer.weight_decay", "0 or more");
}

void CheckCheckpoint(const v1::CheckpointSpec& checkpoint, Problems& problems) {
  if (checkpoint.dir().empty()) {
    problems.Add("train.checkpoint.dir", "is missing: where on the node to write");
  } else {
    problems.RequireAbsolutePath("train.checkpoint.dir", checkpoint.dir());
  }
  problems.Require(checkpoint.keep() >= 1 && checkpoint.keep() <= kMaxCheckpointsKept,
                   "train.checkpoint.keep", absl::StrCat("from 1 to ", kMaxCheckpointsKept));
}

void CheckData(const v1::TrainSpec& train, Problems& problems) {
  RequireWord("train.dataset.name", train.dataset(), "name", problems);
  if (train.dataset().path().empty()) {
    problems.Add("train.dataset.path", "is missing: the folder with its files on the node");
  } else {
    problems.RequireAbsolutePath("train.dataset.path", train.dataset().path());
  }
  problems.Require(
      train.image_size() == kBuiltInImageSize, "train.image_size",
      absl::StrCat(kBuiltInImageSize, ", the data set's own; resizing is not built in"));
  problems.Require(train.augment().crop_padding() <= train.image_size(),
                   "train.augment.crop_padding", "at most train.image_size");
  problems.Require(train.loader().threads() >= 1 && train.loader().threads() <= kMaxThreads,
                   "train.loader.threads", absl::StrCat("from 1 to ", kMaxThreads));
  problems.Require(train.loader().prefetch() >= 1 && train.loader().prefetch() <= kMaxThreads,
                   "train.loader.prefetch", absl::StrCat("from 1 to ", kMaxThreads));
}

void CheckStrategy(const v1::StrategySpec& strategy, Problems& problems) {
  RequireWord("train.strategy.name", strategy, "name", problems);
  problems.Require(strategy.bucket_bytes() >= 1 && strategy.bucket_bytes() <= kMaxBucketBytes,
                   "train.strategy.bucket_bytes", "from 1 to 4GiB");
  problems.Require(
      strategy.first_bucket_bytes() >= 1 && strategy.first_bucket_bytes() <= kMaxBucketBytes,
      "train.strategy.first_bucket_bytes", "from 1 to 4GiB");
}

void CheckTrain(const v1::JobSpec& spec, Problems& problems) {
  const v1::TrainSpec& train = spec.train();
  CheckModel(train.model(), problems);
  CheckData(train, problems);
  CheckLength(train, problems);
  const uint32_t ranks = MaxWorldSize(spec);
  if (train.global_batch() < ranks) {
    problems.Add("train.global_batch",
                 absl::StrCat(train.global_batch(), " is below the number of ", "ranks, ", ranks));
  }
  problems.Require(train.global_batch() <= kMaxGlobalBatch, "train.global_batch",
                   absl::StrCat("at most ", kMaxGlobalBatch));
  CheckOptimizer(train.optimizer(), problems);
  RequireWord("train.precision", train, "precision", problems);
  CheckStrategy(train.strategy(), problems);
  RequireWord("train.objective.name", train.objective(), "name", problems);
  problems.Require(
      train.objective().label_smoothing() >= 0 && train.objective().label_smoothing() < 1,
      "train.objective.label_smoothing", "from 0 to below 1");
  if (!train.init_from().empty()) {
    problems.RequireAbsolutePath("train.init_from", train.init_from());
    problems.Require(absl::EndsWith(train.init_from(), ".safetensors"), "train.init_from",
                     "a .safetensors file");
  }
  if (train.has_checkpoint()) CheckCheckpoint(train.checkpoint(), problems);
}

}  // namespace

absl::Status Validate(const v1::JobSpec& spec) {
  if (spec.ByteSizeLong() > limits::kSpecBytes) {
    return absl::InvalidArgumentError(absl::StrCat("the spec takes ", spec.ByteSizeLong(),
                                                   " bytes; at most ", limits::kSpecBytes));
  }
  Problems problems;
  problems.Require(IsName(spec.name()), "name",
                   absl::StrCat("1 to ", limits::kNameLength,
                                " lower-case letters, digits and '-', with no '-' at an end, not ",
                                Quoted(spec.name())));
  if (spec.has_train() && spec.command_size() > 0) {
    problems.Add("command", "a job has train or command, not both");
  } else if (!spec.has_train() && spec.command().empty()) {
    problems.Add("train", "is missing: a job needs train or command");
  }
  CheckEnvironment(spec, problems);
  if (!spec.command().empty()) CheckCommand(spec, problems);
  if (!spec.workdir().empty()) problems.RequireAbsolutePath("workdir", spec.workdir());
  CheckResources(spec, problems);
  CheckBackend(spec, problems);
  CheckPolicies(spec, problems);
  if (spec.has_train()) CheckTrain(spec, problems);
  return problems.status();
}

}  // namespace muster::spec
