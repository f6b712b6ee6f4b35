#include "worker/agent/generation/rank_launch.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "common/process/environment_value.h"
#include "common/process/stop_signal.h"
#include "common/time/proto_time.h"
#include "spec/cut_off.h"
#include "spec/spec.h"
#include "worker/agent/generation/launcher.h"
#include "worker/shim/cgroup.h"
#include "worker/shim/process_tree.h"

namespace muster::agent {
namespace {

// As often as the shim samples activity with the default hang_timeout, or less.
constexpr int64_t kMemoryIntervalMs = 15'000;

// The CPUs of the rank's slots; empty if it may run on all.
std::vector<int> CpusOf(const GenerationContext& context, const v1::Launch& launch,
                        const v1::RankPlacement& placement) {
  std::vector<int> cpus;
  for (const uint32_t slot : placement.slots()) {
    if (slot >= context.cpus_of_slots.size()) return {};
    const std::vector<int>& more = context.cpus_of_slots[slot];
    cpus.insert(cpus.end(), more.begin(), more.end());
  }
  // Fewer CPUs than compute threads would slow the rank down.
  size_t threads = launch.spec().resources().threads_per_rank();
  if (spec::DrivesSeveralDevices(launch.spec().train().strategy())) {
    threads *= static_cast<size_t>(placement.slots_size());
  }
  if (cpus.size() < threads) return {};
  return cpus;
}

}  // namespace

std::string ReplacePlaceholders(absl::string_view argument, const Placeholders& values) {
  if (absl::c_any_of(argument, absl::ascii_isspace)) return std::string(argument);
  std::vector<std::pair<absl::string_view, std::string>> replacements = {
      {"{rank}", absl::StrCat(values.rank)},
      {"{local_rank}", absl::StrCat(values.local_rank)},
      {"{node_rank}", absl::StrCat(values.node_rank)},
      {"{node}", values.node}};
  if (values.array_index.has_value()) {
    replacements.emplace_back("{array_index}", absl::StrCat(*values.array_index));
  }
  std::string text;
  while (!argument.empty()) {
    const bool may_begin = argument[0] == '{' && !absl::EndsWith(text, "$");
    const auto found = absl::c_find_if(replacements, [&](const auto& replacement) {
      return may_begin && absl::StartsWith(argument, replacement.first);
    });
    if (found != replacements.end()) {
      text += found->second;
      argument.remove_prefix(found->first.size());
    } else {
      text += argument[0];
      argument.remove_prefix(1);
    }
  }
  return text;
}

shim::Instructions MakeInstructions(const GenerationContext& context, const v1::Launch& launch,
                                    const v1::RankPlacement& placement, const std::string& token,
                                    const Address& master, const std::optional<JobUser>& user) {
  const DataDirectory& directory = *context.directory;
  const std::string& job = launch.job_id();
  const uint64_t generation = launch.generation();
  const uint32_t rank = placement.rank();
  const v1::JobSpec& spec = launch.spec();

  RankEnvironment environment;
  environment.token = token;
  environment.launch_file = directory.LaunchFile(job, generation);
  environment.master = master;
  environment.error_file = directory.ErrorFile(job, generation, rank);
  environment.progress_file = directory.ProgressFile(job, generation, rank);
  if (user.has_value()) {
    const std::string folder = directory.UserFiles(job, generation, rank);
    environment.launch_file = absl::StrCat(folder, kUserLaunchFile);
    environment.error_file = absl::StrCat(folder, "/error.json");
    environment.progress_file = absl::StrCat(folder, "/progress");
    environment.user = user;
  }
  environment.checkpoint = CommandCheckpoint(context, launch);

  shim::Instructions instructions;
  if (user.has_value()) instructions.user = user->credentials;
  Placeholders values = {rank, placement.local_rank(), launch.node_rank(),
                         context.environment.node_name};
  if (launch.array_count() > 0) values.array_index = launch.array_index();
  std::vector<std::string> program;
  for (const std::string& argument : spec.command()) {
    program.push_back(ReplacePlaceholders(argument, values));
  }
  if (spec.has_train()) program = {context.rank_binary};
  instructions.command = MakeLauncher(context, launch)->CommandFor(std::move(program));
  instructions.workdir = spec.workdir();
  if (instructions.workdir.empty()) instructions.workdir = directory.Work(job, rank);
  if (!spec.has_train()) instructions.checkpoint_dir = launch.checkpoint_dir();
  environment.workdir = instructions.workdir;
  instructions.environment = RankVariables(context.environment, launch, placement, environment);
  instructions.stdout_path = directory.Log(job, generation, rank, v1::STDOUT);
  instructions.stderr_path = directory.Log(job, generation, rank, v1::STDERR);
  // Jobs that were stored by an earlier version name no output.
  instructions.joined_output = spec.output() == "joined";
  instructions.log_max_bytes = context.rank_log_bytes;
  instructions.failure_timeout_ms = absl::ToInt64Milliseconds(FromProto(spec.failure_timeout()));
  instructions.lease_deadline_ms = context.lease_deadline_ms(launch);
  instructions.stop_signal = FindStopSignal(spec.stop_signal()).number;
  instructions.grace_ms = absl::ToInt64Milliseconds(FromProto(spec.grace_period()));
  instructions.hang_timeout_ms = absl::ToInt64Milliseconds(FromProto(spec.hang_timeout()));
  instructions.memory_interval_ms = kMemoryIntervalMs;
  instructions.cpus = CpusOf(context, launch, placement);
  instructions.mark = shim::NewMark();
  if (!context.cgroup.empty()) {
    // Workers of one machine may share the parent group: the token makes the name unique.
    instructions.cgroup = absl::StrCat(context.cgroup, "/", shim::kCgroupPrefix, job, "-",
                                       generation, "-", rank, "-", token.substr(0, 8));
    if (context.limits_unavailable.empty()) {
      instructions.limits = {spec.resources().memory(), spec.resources().pids()};
    }
  }
  return instructions;
}

Address MasterIn(const shim::Instructions& instructions) {
  Address master;
  master.host = std::string(EnvironmentValue(instructions.environment, "MASTER_ADDR"));
  uint32_t port = 0;
  if (absl::SimpleAtoi(EnvironmentValue(instructions.environment, "MASTER_PORT"), &port) &&
      port <= UINT16_MAX) {
    master.port = static_cast<uint16_t>(port);
  }
  return master;
}

std::vector<std::string> SecretsFor(const shim::Instructions& instructions,
                                    const std::vector<std::string>& secrets) {
  std::vector<std::string> added;
  for (const std::string& secret : secrets) {
    const std::string name = secret.substr(0, secret.find('=') + 1);
    const bool is_set =
        std::any_of(instructions.environment.begin(), instructions.environment.end(),
                    [&name](const std::string& entry) { return absl::StartsWith(entry, name); });
    if (!is_set) added.push_back(secret);
  }
  return added;
}

absl::Status CheckTracked(const GenerationContext& context,
                          const shim::Instructions& instructions) {
  if (instructions.mark != 0 || !instructions.cgroup.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "cannot track the processes of a rank on ", context.environment.node_name,
      ": the worker has no control group, and its hard limit of file locks (ulimit -Hx) is too low "
      "or cannot be changed; set the limit to unlimited, or delegate cgroup v2 to the worker"));
}

void KeepLease(const GenerationContext& context, const v1::Launch& launch,
               const std::shared_ptr<ShimLine>& line) {
  if (!launch.has_job_lease() || spec::ContinuesWhenCutOff(launch.spec())) return;
  context.lease_lines->Add(launch.job_id(), launch.generation(), FromProto(launch.job_lease()),
                           line);
}

std::string UnenforcedLimits(const GenerationContext& context, const v1::Resources& resources) {
  if (context.limits_unavailable.empty()) return "";
  std::vector<absl::string_view> limits;
  if (resources.memory() != 0) limits.push_back("resources.memory");
  if (resources.pids() != 0) limits.push_back("resources.pids");
  if (limits.empty()) return "";
  return absl::StrCat(absl::StrJoin(limits, " and "), limits.size() == 1 ? " is" : " are",
                      " not enforced on ", context.environment.node_name, ": ",
                      context.limits_unavailable);
}

v1::CheckpointStatus CommandCheckpoint(const GenerationContext& context, const v1::Launch& launch) {
  v1::CheckpointStatus checkpoint;
  checkpoint.set_shared(!launch.checkpoint_dir().empty());
  if (checkpoint.shared()) {
    checkpoint.set_dir(launch.checkpoint_dir());
  } else {
    checkpoint.set_dir(context.directory->Checkpoint(launch.job_id()));
    checkpoint.set_node(context.environment.node_name);
  }
  return checkpoint;
}

}  // namespace muster::agent
