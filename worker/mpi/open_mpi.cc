#include "worker/mpi/open_mpi.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/process/environment_value.h"

namespace muster::mpi {
namespace {

constexpr absl::string_view kHostPrefix = "node-rank-";

// Prefixes of variables by which mpirun recognizes a batch system, whose nodes and launcher it
// would use.
constexpr absl::string_view kBatchSystems[] = {"SLURM_", "PBS_", "LSB_", "LSF_", "SGE_", "PE_HOST"};

// Prefixes of variables that Open MPI sets for the processes that it starts.
constexpr absl::string_view kLaunchedPrefixes[] = {"OMPI_", "PMIX_", "OPAL_", "ORTE_"};

using Variables = std::map<std::string, std::string>;

template <typename Prefixes>
bool StartsWithAny(absl::string_view text, const Prefixes& prefixes) {
  return absl::c_any_of(
      prefixes, [text](absl::string_view prefix) { return absl::StartsWith(text, prefix); });
}

Variables ToVariables(const Environment& environment) {
  Variables variables;
  for (const std::string& entry : environment) {
    const size_t equals = entry.find('=');
    if (equals == std::string::npos) continue;
    variables[entry.substr(0, equals)] = entry.substr(equals + 1);
  }
  return variables;
}

Environment ToEnvironment(const Variables& variables) {
  Environment environment;
  environment.reserve(variables.size());
  for (const auto& [name, value] : variables) {
    environment.push_back(absl::StrCat(name, "=", value));
  }
  return environment;
}

std::string Parameter(absl::string_view name) { return absl::StrCat("OMPI_MCA_", name); }

// Restricts `framework` (oob_tcp or btl_tcp) to the node's interface unless `own` selects others.
void SetInterface(absl::string_view framework, const Variables& own, const NodeOptions& node,
                  Variables& variables) {
  const std::string include = Parameter(absl::StrCat(framework, "_if_include"));
  const std::string exclude = Parameter(absl::StrCat(framework, "_if_exclude"));
  if (node.interface.empty() || own.count(include) > 0 || own.count(exclude) > 0) return;
  variables[include] = node.interface;
}

void SetUnlessOwn(const std::string& name, const std::string& value, const Variables& own,
                  Variables& variables) {
  if (own.count(name) == 0) variables[name] = value;
}

}  // namespace

std::string HostFile(const std::vector<uint32_t>& ranks_on_node) {
  std::string text;
  for (size_t node = 0; node < ranks_on_node.size(); ++node) {
    const std::string name = node == 0 ? "localhost" : absl::StrCat(kHostPrefix, node);
    absl::StrAppend(&text, name, " slots=", ranks_on_node[node], "\n");
  }
  return text;
}

std::optional<uint32_t> NodeRankOf(absl::string_view host) {
  uint32_t node_rank = 0;
  if (!absl::ConsumePrefix(&host, kHostPrefix) || !absl::SimpleAtoi(host, &node_rank) ||
      node_rank == 0) {
    return std::nullopt;
  }
  return node_rank;
}

std::vector<std::string> MpirunCommand(const std::string& host_file, uint32_t world_size) {
  return {"mpirun", "--allow-run-as-root",
          // Ranks are numbered node by node, as Muster does.
          "--hostfile", host_file, "-np", absl::StrCat(world_size), "--map-by", "slot",
          // Workers bind ranks to CPUs.
          "--bind-to", "none",
          // A directory that every node has: ranks are in their own already.
          "--wdir", "/", "--mca", "plm_rsh_agent", absl::StrCat(kProgram, " ", kRemoteShellMode),
          // mpirun itself starts the daemons of all nodes, and they stay in the foreground.
          "--mca", "plm_rsh_no_tree_spawn", "1", "--mca", "orte_leave_session_attached", "1",
          // Settings of a node, such as its network interface, are not those of others.
          "--mca", "plm_rsh_pass_environ_mca_params", "0",
          // The names in the host file have no addresses.
          "--mca", "if_base_do_not_resolve", "1", kProgram, kProxyMode};
}

Environment DaemonEnvironment(const Environment& own, const NodeOptions& node) {
  const Variables before = ToVariables(own);
  Variables variables;
  for (const auto& [name, value] : before) {
    if (!StartsWithAny(name, kBatchSystems)) variables[name] = value;
  }
  variables["PATH"] = absl::StrCat(node.program_folder, ":", EnvironmentValue(own, "PATH"));
  SetInterface("oob_tcp", before, node, variables);
  // Daemons of several workers on one machine would delete each other's files.
  variables[Parameter("orte_tmpdir_base")] = node.directory;
  variables[kDirectoryVariable] = node.directory;
  // Nodes with one host name would count as one. mpirun's own node has its host name.
  if (const absl::string_view rank = EnvironmentValue(own, "NODE_RANK");
      !rank.empty() && rank != "0") {
    variables["PMIX_HOSTNAME"] = absl::StrCat(kHostPrefix, rank);
  }
  return ToEnvironment(variables);
}

Environment ProgramEnvironment(const Environment& own, const Environment& launched,
                               const NodeOptions& node, const std::vector<std::string>& command,
                               bool oversubscribed) {
  const Variables before = ToVariables(own);
  Variables variables = before;
  for (const auto& [name, value] : ToVariables(launched)) {
    if (StartsWithAny(name, kLaunchedPrefixes)) variables[name] = value;
  }
  SetInterface("btl_tcp", before, node, variables);
  if (!node.shared_memory.empty()) {
    SetUnlessOwn(Parameter("btl_vader_backing_directory"), node.shared_memory, before, variables);
  }
  // A rank that waits would keep the others from running.
  if (oversubscribed) SetUnlessOwn(Parameter("mpi_yield_when_idle"), "1", before, variables);
  // As reported in MPI_INFO_ENV.
  variables["OMPI_COMMAND"] = command.front();
  variables["OMPI_ARGV"] = absl::StrJoin(command.begin() + 1, command.end(), " ");
  variables[Parameter("initial_wdir")] = std::string(EnvironmentValue(own, "PWD"));
  return ToEnvironment(variables);
}

}  // namespace muster::mpi
