#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/limits.h"
#include "common/text/nearest.h"
#include "spec/hosted_store.h"
#include "spec/rules/rules.h"
#include "spec/spec.h"

namespace muster::spec {
namespace {

bool IsName(absl::string_view name) {
  if (name.empty() || name.size() > limits::kNameLength) return false;
  if (name.front() == '-' || name.back() == '-') return false;
  return std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '-';
  });
}

// Whether Muster sets the variable for each rank; a job that set it would break its own rendezvous.
bool IsReserved(absl::string_view variable) {
  constexpr absl::string_view kReserved[] = {
      "RANK",        "WORLD_SIZE",  "LOCAL_RANK",           "LOCAL_WORLD_SIZE", "GROUP_RANK",
      "NODE_RANK",   "ROLE_RANK",   "GROUP_WORLD_SIZE",     "ROLE_NAME",        "ROLE_WORLD_SIZE",
      "MASTER_ADDR", "MASTER_PORT", "CUDA_VISIBLE_DEVICES",
  };
  return absl::StartsWith(variable, "MUSTER_") || absl::StartsWith(variable, "TORCHELASTIC_") ||
         std::find(std::begin(kReserved), std::end(kReserved), variable) != std::end(kReserved);
}

void CheckVariable(const std::string& variable, const std::string& path, Problems& problems) {
  // YAML keys are limited to 1,024 characters.
  if (variable.size() > limits::kLabelBytes) {
    problems.Add("env", "contains a name of ", variable.size(), " bytes; at most ",
                 limits::kLabelBytes, " are allowed");
    return;
  }
  problems.RequireText(path, variable);
  if (variable.empty() || absl::StrContains(variable, '=')) {
    problems.Add(path, "is not a variable name; use a name without '='");
  } else if (IsReserved(variable)) {
    problems.Add(path, "is set by Muster; choose another name");
  }
}

// A reserved variable that a job may set.
void CheckHostedStore(const v1::JobSpec& spec, const std::string& value, const std::string& path,
                      Problems& problems) {
  if (spec.has_train()) problems.Add(path, "is only for command jobs; remove it");
  problems.Require(value == "0" || value == "1", path, "0 or 1, not ", Quoted(value));
}

// Whether the variable is one of a task of an array. A job that is none may set it, to run as if it
// were that task.
bool IsOfTask(const v1::JobSpec& spec, absl::string_view variable) {
  return !spec.has_array() && (variable == "MUSTER_ARRAY_ID" || variable == "MUSTER_ARRAY_INDEX" ||
                               variable == "MUSTER_ARRAY_COUNT");
}

void CheckEnvironment(const v1::JobSpec& spec, Problems& problems) {
  for (const auto& entry : spec.env()) {
    const std::string path = absl::StrCat("env ", Quoted(entry.first));
    if (entry.first == kHostedStoreVariable) {
      CheckHostedStore(spec, entry.second, path, problems);
      continue;
    }
    if (!IsOfTask(spec, entry.first)) CheckVariable(entry.first, path, problems);
    problems.RequireText(path, entry.second);
  }
}

bool IsSecretName(absl::string_view name) {
  return !name.empty() && name.size() <= limits::kNameLength && name != "." && name != ".." &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return absl::ascii_isalnum(c) || c == '.' || c == '_' || c == '-';
         });
}

void CheckSecrets(const v1::JobSpec& spec, Problems& problems) {
  for (const auto& [variable, secret] : spec.secret_env()) {
    const std::string path = absl::StrCat("env ", Quoted(variable));
    CheckVariable(variable, path, problems);
    if (spec.env().contains(variable)) {
      problems.Add(path, "has both a value and a secret; remove one of them");
    }
    problems.Require(IsSecretName(secret), path + ".secret", "1 to ", limits::kNameLength,
                     " letters, digits, '.', '_' and '-', not ", Quoted(secret));
  }
}

void CheckFiles(const v1::JobSpec& spec, Problems& problems) {
  if (spec.files().empty()) return;
  if (spec.has_train()) problems.Add("files", "are only for command jobs; remove them");
  if (!spec.workdir().empty()) {
    problems.Add("files",
                 "are placed in each rank's own directory, but workdir is set; remove one of them");
  }
  for (int i = 0; i < spec.files_size(); ++i) {
    CheckFields(spec.files(i), absl::StrCat("files[", i, "]"), problems);
  }
}

void CheckDevices(const v1::JobSpec& spec, Problems& problems) {
  const v1::Resources& resources = spec.resources();
  const std::string path = "resources.devices_per_rank";
  const std::string& text = resources.devices_per_rank();
  uint32_t devices = 0;
  const bool number = absl::SimpleAtoi(text, &devices);
  problems.Require(text == "all" || (number && devices >= 1 && devices <= limits::kSlotsPerNode),
                   path, "'all' or from 1 to ", limits::kSlotsPerNode, ", not ", Quoted(text));
  if (spec.has_train() && resources.device() == "gpu" &&
      !DrivesSeveralDevices(spec.train().strategy())) {
    problems.Require(number && devices == 1, path, "1, not ", text,
                     ": a rank computes on one GPU, except with strategy dp or "
                     "hybrid");
  }
  if (text == "all" && resources.ranks_per_node() > 1) {
    problems.Add(path,
                 "is all, which leaves no device for a second rank; set "
                 "resources.ranks_per_node to 1, not ",
                 resources.ranks_per_node());
  }
}

void CheckResources(const v1::JobSpec& spec, Problems& problems) {
  const v1::NodeCount& nodes = spec.resources().nodes();
  if (nodes.max() < nodes.min()) {
    problems.Add("resources.nodes", "max ", nodes.max(), " is below min ", nodes.min());
  }
  if (nodes.max() <= limits::kNodes && MaxWorldSize(spec) > limits::kRanksPerJob) {
    problems.Add("resources", MaxWorldSize(spec), " ranks; the limit is ", limits::kRanksPerJob);
  }
  CheckDevices(spec, problems);
}

// Checks the constraints on nodes and GPUs, and a total number of ranks.
void CheckConstraints(const v1::JobSpec& spec, Problems& problems) {
  const v1::Resources& resources = spec.resources();
  for (const auto& [label, value] : resources.select()) {
    const std::string path = absl::StrCat("resources.select ", Quoted(label));
    if (label.empty()) problems.Add(path, "is not a label; use a name");
    problems.RequireText(path, label);
    problems.RequireText(path, value);
  }
  const bool cpu = resources.device() == "cpu";
  if (cpu && !resources.gpu_model().empty()) {
    problems.Add("resources.gpu_model",
                 "is given, but resources.device is cpu; remove one of them");
  }
  if (cpu && resources.gpu_memory() > 0) {
    problems.Add("resources.gpu_memory",
                 "is given, but resources.device is cpu; remove one of them");
  }
  for (const std::string& name : resources.exclude_nodes()) {
    if (!absl::c_linear_search(resources.prefer_nodes(), name)) continue;
    problems.Add("resources.prefer_nodes", Quoted(name),
                 " is also in exclude_nodes; remove it from one of them");
  }
  if (resources.ranks() == 0) return;
  if (spec.has_train()) {
    problems.Add("resources.ranks",
                 "is only for command jobs; set resources.nodes and ranks_per_node");
  }
  const v1::NodeCount& nodes = resources.nodes();
  if (nodes.min() > 1 || nodes.max() > 1) {
    problems.Add("resources.ranks",
                 "is given in place of resources.nodes, which is also set; remove one of them");
  }
  if (resources.ranks_per_node() > 1) {
    problems.Add("resources.ranks",
                 "is given in place of resources.ranks_per_node, which is also set; remove one of "
                 "them");
  }
}

void CheckDependencies(const v1::Dependencies& after, Problems& problems) {
  const auto check = [&problems](absl::string_view path, const auto& jobs) {
    problems.Require(!absl::c_linear_search(jobs, ""), path, "ids or names of jobs, none empty");
  };
  check("after.ok", after.ok());
  check("after.failed", after.failed());
  check("after.any", after.any());
  for (const std::string& job : after.ok()) {
    if (!absl::c_linear_search(after.failed(), job)) continue;
    problems.Add("after", Quoted(job),
                 " is in both ok and failed, and cannot end in "
                 "both ways; remove it from one of them");
  }
}

void CheckBackend(const v1::JobSpec& spec, Problems& problems) {
  const std::string& backend = spec.backend();
  if (backend == "shm" && spec.resources().nodes().max() > 1) {
    problems.Add("backend", "shm supports only one node; use gloo or hierarchical between nodes");
  }
  if (backend == "nccl" && spec.resources().device() == "cpu") {
    problems.Add("backend", "nccl requires GPUs; use shm, gloo or hierarchical on CPUs");
  }
  if (backend == "loopback" && MaxWorldSize(spec) > 1) {
    problems.Add("backend", "loopback supports only one rank, not ", MaxWorldSize(spec));
  }
}

void CheckRestarts(const v1::JobSpec& spec, Problems& problems) {
  if (spec.on_hang() == "restart" && spec.restart().has_max() && spec.restart().max() == 0) {
    problems.Add("restart.max",
                 "is 0, but on_hang is restart, which needs at least 1; set a larger maximum, or "
                 "on_hang to report");
  }
}

}  // namespace

void CheckJobRules(const v1::JobSpec& spec, Problems& problems) {
  problems.Require(IsName(spec.name()), "name", "1 to ", limits::kNameLength,
                   " lower-case letters, digits and '-', with no '-' at an end, not ",
                   Quoted(spec.name()));
  if (spec.has_train() && spec.command_size() > 0) {
    problems.Add("command", "a job has either train or command; remove one of them");
  } else if (!spec.has_train() && spec.command().empty()) {
    problems.AddMissing("train", "is missing; a job needs train or command");
  }
  if (spec.command_size() > 0 && spec.command(0).empty()) {
    problems.Add("command", "the program's name is empty");
  }
  if (spec.has_train() && !spec.launcher().empty()) {
    problems.Add("launcher", "is only for command jobs; remove it");
  }
  if (spec.has_train() && !spec.checkpoint_dir().empty()) {
    problems.Add("checkpoint_dir", "is only for command jobs; set train.checkpoint.dir");
  }
  CheckEnvironment(spec, problems);
  CheckSecrets(spec, problems);
  CheckFiles(spec, problems);
  CheckResources(spec, problems);
  CheckConstraints(spec, problems);
  CheckBackend(spec, problems);
  CheckRestarts(spec, problems);
  CheckDependencies(spec.after(), problems);
  if (spec.has_array()) CheckArray(spec, problems);
}

}  // namespace muster::spec
