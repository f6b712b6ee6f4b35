#include "worker/agent/generation/environment.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "common/process/stop_signal.h"
#include "common/time/proto_time.h"
#include "worker/agent/storage/memory_directory.h"

namespace muster::agent {
namespace {

void AddDefaults(const NodeEnvironment& node, const v1::Launch& launch,
                 const v1::RankPlacement& placement, Variables& variables) {
  variables.emplace("PYTHONUNBUFFERED", "1");
  // NCCL rejects two ranks on one GPU of the same host, so each rank gets its own host id.
  if (launch.spec().resources().share_device()) {
    variables.emplace("NCCL_HOSTID", absl::StrCat("muster-", launch.job_id(), "-",
                                                  launch.generation(), "-", placement.rank()));
  }
  const uint32_t threads = std::max(1u, launch.spec().resources().threads_per_rank());
  if (launch.spec().has_train()) {
    variables["OMP_NUM_THREADS"] = absl::StrCat(threads);
    return;
  }
  variables.emplace("OMP_NUM_THREADS", absl::StrCat(threads));
  // Python prints its stacks when it is stopped with SIGABRT because it hangs.
  variables.emplace("PYTHONFAULTHANDLER", "1");
  // By default, Gloo uses the address of the host name and NCCL the first interface that is not
  // loopback.
  if (node.interface.empty()) return;
  variables.emplace("GLOO_SOCKET_IFNAME", node.interface);
  variables.emplace("NCCL_SOCKET_IFNAME", node.interface);
}

std::string VisibleDevices(const NodeEnvironment& node, const v1::RankPlacement& placement) {
  std::vector<std::string> uuids;
  for (const uint32_t index : placement.slots()) {
    if (index < node.slots.size() && !node.slots[index].uuid().empty()) {
      uuids.push_back(node.slots[index].uuid());
    }
  }
  return absl::StrJoin(uuids, ",");
}

std::string DriverVersion(const NodeEnvironment& node, const v1::RankPlacement& placement) {
  for (const uint32_t index : placement.slots()) {
    if (index >= node.slots.size()) continue;
    const std::string& version = node.slots[index].device().driver_version();
    if (!version.empty()) return version;
  }
  return "";
}

void AddPlace(const NodeEnvironment& node, const v1::Launch& launch,
              const v1::RankPlacement& placement, Variables& variables) {
  variables["RANK"] = absl::StrCat(placement.rank());
  variables["WORLD_SIZE"] = absl::StrCat(launch.world_size());
  variables["LOCAL_RANK"] = absl::StrCat(placement.local_rank());
  variables["LOCAL_WORLD_SIZE"] = absl::StrCat(launch.ranks_size());
  variables["NODE_RANK"] = absl::StrCat(launch.node_rank());
  variables["GROUP_RANK"] = absl::StrCat(launch.node_rank());
  variables["GROUP_WORLD_SIZE"] = absl::StrCat(launch.node_count());
  variables["CUDA_VISIBLE_DEVICES"] = VisibleDevices(node, placement);
}

bool IsInherited(absl::string_view variable, Inherit inherit) {
  const bool listed =
      absl::c_any_of(kInheritedVariables, [variable](const InheritedVariable& entry) {
        absl::string_view name = entry.name;
        return absl::ConsumeSuffix(&name, "*") ? absl::StartsWith(variable, name)
                                               : variable == name;
      });
  if (listed || inherit == Inherit::kDefault) return listed;
  return !absl::StartsWith(variable, "MUSTER_") && variable != "OLDPWD";
}

void AddTorch(const v1::Launch& launch, const v1::RankPlacement& placement,
              const RankEnvironment& rank, Variables& variables) {
  variables["ROLE_NAME"] = "default";
  variables["ROLE_RANK"] = absl::StrCat(placement.rank());
  variables["ROLE_WORLD_SIZE"] = absl::StrCat(launch.world_size());
  variables["MASTER_ADDR"] = rank.master.host;
  variables["MASTER_PORT"] = absl::StrCat(rank.master.port);
  variables["TORCHELASTIC_RUN_ID"] = launch.job_id();
  variables["TORCHELASTIC_RESTART_COUNT"] = absl::StrCat(launch.restarts());
  variables["TORCHELASTIC_MAX_RESTARTS"] = absl::StrCat(launch.spec().restart().max());
  variables["TORCHELASTIC_ERROR_FILE"] = rank.error_file;
  // Without a hosted store, rank 0 itself must listen on MASTER_PORT.
  const bool hosted = spec::RequestsHostedStore(launch.spec());
  variables["TORCHELASTIC_USE_AGENT_STORE"] = hosted ? "True" : "False";
  variables[spec::kHostedStoreVariable] = hosted ? "1" : "0";
  variables["MUSTER_PROGRESS"] = rank.progress_file;
}

// As a login would set them.
void AddUser(const JobUser& user, Variables& variables) {
  variables["HOME"] = user.home;
  variables["USER"] = user.name;
  variables["LOGNAME"] = user.name;
  if (!user.shell.empty()) variables["SHELL"] = user.shell;
}

void AddMuster(const NodeEnvironment& node, const v1::Launch& launch, const RankEnvironment& rank,
               Variables& variables) {
  variables["MUSTER_JOB_ID"] = launch.job_id();
  variables["MUSTER_GENERATION"] = absl::StrCat(launch.generation());
  variables["MUSTER_NODE_NAME"] = node.node_name;
  if (launch.array_count() > 0) {
    variables["MUSTER_ARRAY_ID"] = launch.array_id();
    variables["MUSTER_ARRAY_INDEX"] = absl::StrCat(launch.array_index());
    variables["MUSTER_ARRAY_COUNT"] = absl::StrCat(launch.array_count());
  }
  variables["MUSTER_CACHE_DIR"] = CacheDirectoryOf(node, rank.user);
  variables["MUSTER_WORKER_SOCKET"] = node.worker_socket;
  variables["MUSTER_RANK_TOKEN"] = rank.token;
  variables["MUSTER_STOP_SIGNAL"] = FindStopSignal(launch.spec().stop_signal()).name;
  variables["MUSTER_GRACE_SECONDS"] =
      absl::StrCat(absl::ToDoubleSeconds(FromProto(launch.spec().grace_period())));
}

}  // namespace

Variables InheritedVariables(const char* const* environment, Inherit inherit) {
  Variables variables;
  for (; *environment != nullptr; ++environment) {
    const absl::string_view entry = *environment;
    const size_t equals = entry.find('=');
    if (equals == absl::string_view::npos) continue;
    const absl::string_view name = entry.substr(0, equals);
    if (IsInherited(name, inherit)) variables.emplace(name, entry.substr(equals + 1));
  }
  return variables;
}

std::string CacheDirectoryOf(const NodeEnvironment& node, const std::optional<JobUser>& user) {
  if (!user.has_value()) return node.cache_dir;
  return absl::StrCat(node.cache_dir, "/", user->credentials.uid);
}

std::vector<std::string> RankVariables(const NodeEnvironment& node, const v1::Launch& launch,
                                       const v1::RankPlacement& placement,
                                       const RankEnvironment& rank) {
  Variables variables = node.inherited;
  if (rank.user.has_value()) AddUser(*rank.user, variables);
  AddDefaults(node, launch, placement, variables);
  for (const auto& entry : launch.spec().env()) variables[entry.first] = entry.second;
  // The rank's shim adds these; their values are not stored with its instructions.
  for (const auto& entry : launch.spec().secret_env()) variables.erase(entry.first);
  variables["PWD"] = rank.workdir;
  AddPlace(node, launch, placement, variables);
  AddMuster(node, launch, rank, variables);
  variables["MUSTER_CHECKPOINT_DIR"] = rank.checkpoint.dir();
  variables["MUSTER_CHECKPOINT_SHARED"] = rank.checkpoint.shared() ? "1" : "0";
  if (launch.spec().has_train()) {
    variables["MUSTER_LAUNCH_FILE"] = rank.launch_file;
    variables["MUSTER_JOB_MEMORY_DIR"] = MemoryDirectoryOf(node.memory_dir, launch.job_id());
    const std::string driver = DriverVersion(node, placement);
    if (!driver.empty()) variables["MUSTER_DRIVER_VERSION"] = driver;
  } else {
    AddTorch(launch, placement, rank, variables);
  }

  std::vector<std::string> entries;
  entries.reserve(variables.size());
  for (const auto& [name, value] : variables) entries.push_back(absl::StrCat(name, "=", value));
  return entries;
}

}  // namespace muster::agent
