#include "worker/mpi/daemon_exchange.h"

#include <cerrno>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/limits.h"
#include "common/status.h"
#include "worker/mpi/open_mpi.h"
#include "worker/shim/fields.h"

namespace muster::mpi {
namespace {

std::string RanksKey(uint32_t node_rank) { return absl::StrCat("mpi/ranks/", node_rank); }
std::string DaemonKey(uint32_t node_rank) { return absl::StrCat("mpi/daemon/", node_rank); }

absl::StatusOr<OpenMpiDaemon> AwaitMpirun(const FirstRank& rank, const KeyFunctions& keys) {
  std::vector<uint32_t> ranks_on_node = {rank.ranks_of_node};
  for (uint32_t node = 1; node < rank.node_count; ++node) {
    ASSIGN_OR_RETURN(const std::string text, keys.get(RanksKey(node)));
    uint32_t ranks = 0;
    if (!absl::SimpleAtoi(text, &ranks) || ranks == 0) {
      return absl::DataLossError(
          absl::StrCat("key ", RanksKey(node), " is '", text, "'; must be a number of ranks"));
    }
    ranks_on_node.push_back(ranks);
  }
  const std::string host_file = absl::StrCat(rank.directory, "/hosts");
  if (!shim::WriteFileAtomically(host_file, HostFile(ranks_on_node), /*sync=*/false)) {
    return ErrnoStatus(errno, absl::StrCat("write ", host_file));
  }
  return OpenMpiDaemon{
      .name = "mpirun", .command = MpirunCommand(host_file, rank.world_size), .is_mpirun = true};
}

}  // namespace

absl::StatusOr<OpenMpiDaemon> AwaitDaemon(const FirstRank& rank, const KeyFunctions& keys) {
  if (rank.node_rank == 0) return AwaitMpirun(rank, keys);
  RETURN_IF_ERROR(keys.put(RanksKey(rank.node_rank), absl::StrCat(rank.ranks_of_node)));
  ASSIGN_OR_RETURN(const std::string command, keys.get(DaemonKey(rank.node_rank)));
  // As ssh does: mpirun has quoted the arguments for a shell.
  return OpenMpiDaemon{.name = "orted", .command = {"/bin/sh", "-c", command}};
}

absl::Status SendDaemonCommand(const std::string& host, const std::vector<std::string>& arguments,
                               const KeyFunctions& keys) {
  const std::optional<uint32_t> node_rank = NodeRankOf(host);
  if (!node_rank.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", host, "' is not a node of the job; mpirun must use the host file of ", "muster-mpi"));
  }
  const std::string command = absl::StrJoin(arguments, " ");
  if (command.size() > limits::kValueBytes) {
    return absl::ResourceExhaustedError(absl::StrCat("the command line of the Open MPI daemon has ",
                                                     command.size(), " bytes; the limit is ",
                                                     limits::kValueBytes));
  }
  return keys.put(DaemonKey(*node_rank), command);
}

}  // namespace muster::mpi
