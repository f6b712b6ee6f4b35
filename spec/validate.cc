#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "spec/nearest.h"
#include "spec/problems.h"
#include "spec/spec.h"
#include "spec/validate_parts.h"

namespace muster::spec {
namespace {

using Words = std::vector<std::string>;

constexpr uint32_t kMaxRestarts = 1000;
constexpr int32_t kPriorityBound = 1000;
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
  RequireWord("resources.device", resources, "device", problems);
  uint32_t devices;
  const bool number = absl::SimpleAtoi(resources.devices_per_rank(), &devices);
  problems.Require(resources.devices_per_rank() == "all" ||
                       (number && devices >= 1 && devices <= limits::kSlotsPerNode),
                   "resources.devices_per_rank",
                   absl::StrCat("'all' or from 1 to ", limits::kSlotsPerNode, ", not ",
                                Quoted(resources.devices_per_rank())));
  const bool drives_several = DrivesSeveralDevices(spec.train().strategy());
  if (spec.has_train() && resources.device() == "gpu" && !drives_several) {
    problems.Require(number && devices == 1, "resources.devices_per_rank",
                     "a rank of a train job computes on one GPU; with strategy dp or hybrid on "
                     "several");
  }
  if (resources.devices_per_rank() == "all" && resources.ranks_per_node() > 1) {
    problems.Add("resources.devices_per_rank",
                 "'all' leaves no device for a second rank: ranks_per_node must be 1");
  }
  problems.Require(resources.threads_per_rank() >= 1 && resources.threads_per_rank() <= kMaxThreads,
                   "resources.threads_per_rank", absl::StrCat("from 1 to ", kMaxThreads));
}

void CheckBackend(const v1::JobSpec& spec, Problems& problems) {
  if (spec.backend() == "mpi") {
    // It is for programs that mpirun starts (docs/mpi.md).
    problems.Add("backend",
                 "mpi is not built in for jobs: the ranks that Muster starts are no MPI job; "
                 "between processors: shm, gloo, hierarchical");
    return;
  }
  RequireWord("backend", spec, "backend", problems);
  if (spec.backend() == "shm" && spec.resources().nodes().max() > 1) {
    problems.Add("backend",
                 "shm connects the ranks of one node; between nodes: gloo, hierarchical");
  }
  if (spec.backend() == "nccl" && spec.resources().device() == "cpu") {
    problems.Add("backend", "nccl connects GPUs; between processors: shm, gloo, hierarchical");
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
