#include "worker/agent/environment.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace muster::agent {
namespace {

void AddDefaults(const v1::Launch& launch, Variables& variables) {
  variables.emplace("PYTHONUNBUFFERED", "1");
  const uint32_t threads = std::max(1u, launch.spec().resources().threads_per_rank());
  if (launch.spec().has_train()) {
    variables["OMP_NUM_THREADS"] = absl::StrCat(threads);
  } else {
    variables.emplace("OMP_NUM_THREADS", absl::StrCat(threads));
  }
}

void AddPlace(const v1::Launch& launch, const v1::RankPlacement& placement, Variables& variables) {
  variables["RANK"] = absl::StrCat(placement.rank());
  variables["WORLD_SIZE"] = absl::StrCat(launch.world_size());
  variables["LOCAL_RANK"] = absl::StrCat(placement.local_rank());
  variables["LOCAL_WORLD_SIZE"] = absl::StrCat(launch.ranks_size());
  variables["NODE_RANK"] = absl::StrCat(launch.node_rank());
  variables["GROUP_RANK"] = absl::StrCat(launch.node_rank());
  variables["GROUP_WORLD_SIZE"] = absl::StrCat(launch.node_count());
}

void AddMuster(const NodeEnvironment& node, const v1::Launch& launch, const std::string& token,
               Variables& variables) {
  variables["MUSTER_JOB_ID"] = launch.job_id();
  variables["MUSTER_GENERATION"] = absl::StrCat(launch.generation());
  variables["MUSTER_NODE_NAME"] = node.node_name;
  variables["MUSTER_CACHE_DIR"] = node.cache_dir;
  variables["MUSTER_WORKER_SOCKET"] = node.worker_socket;
  variables["MUSTER_RANK_TOKEN"] = token;
  variables["MUSTER_GRACE_SECONDS"] = absl::StrCat(launch.spec().grace_period().seconds());
}

}  // namespace

Variables InheritedVariables(const char* const* environment) {
  Variables variables;
  for (; *environment != nullptr; ++environment) {
    const absl::string_view entry = *environment;
    const size_t equals = entry.find('=');
    if (equals == absl::string_view::npos || absl::StartsWith(entry, "MUSTER_")) continue;
    variables.emplace(entry.substr(0, equals), entry.substr(equals + 1));
  }
  return variables;
}

std::vector<std::string> RankVariables(const NodeEnvironment& node, const v1::Launch& launch,
                                       const v1::RankPlacement& placement, const std::string& token,
                                       const std::string& launch_file) {
  Variables variables = node.inherited;
  AddDefaults(launch, variables);
  for (const auto& entry : launch.spec().env()) variables[entry.first] = entry.second;
  AddPlace(launch, placement, variables);
  AddMuster(node, launch, token, variables);
  if (launch.spec().has_train()) variables["MUSTER_LAUNCH_FILE"] = launch_file;

  std::vector<std::string> entries;
  entries.reserve(variables.size());
  for (const auto& [name, value] : variables) entries.push_back(absl::StrCat(name, "=", value));
  return entries;
}

}  // namespace muster::agent
