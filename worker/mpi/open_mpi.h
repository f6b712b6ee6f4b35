// Command lines, files and variables of Open MPI 4.1 that start a job's generation.
//
// The ranks' programs are not started by Open MPI's daemons but by the ranks themselves: see
// rank_process.h.
#ifndef MUSTER_WORKER_MPI_OPEN_MPI_H_
#define MUSTER_WORKER_MPI_OPEN_MPI_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace muster::mpi {

// Entries NAME=value.
using Environment = std::vector<std::string>;

// Settings of one node for a generation of a job.
struct NodeOptions {
  std::string program_folder;  // with muster-mpi
  std::string directory;       // for the ranks' sockets, the host file and Open MPI's session files
  std::string interface;       // network interface to the other nodes; empty: Open MPI selects
  std::string shared_memory;   // directory in memory for its ranks; empty: Open MPI's default
};

// Variable with NodeOptions::directory, for the processes that Open MPI starts.
inline constexpr char kDirectoryVariable[] = "MUSTER_MPI_DIRECTORY";

inline constexpr char kProgram[] = "muster-mpi";
// Its modes that Open MPI starts.
inline constexpr char kRemoteShellMode[] = "remote-shell";
inline constexpr char kProxyMode[] = "proxy";

// Exit code of a process that loses its Open MPI daemon: the low byte of PMIX_ERR_LOST_CONNECTION.
inline constexpr int kLostDaemonExitCode = 195;

// mpirun's host file for nodes with that many ranks, by node rank. mpirun runs on the first node.
// The others have names that depend on the node rank only: names and addresses of nodes need not
// be unique, as with several workers on one machine.
std::string HostFile(const std::vector<uint32_t>& ranks_on_node);

// The node rank of a node other than the first, by its name in HostFile; nothing for other names.
std::optional<uint32_t> NodeRankOf(absl::string_view host);

// mpirun and the daemons find muster-mpi in the PATH of DaemonEnvironment: it may lie elsewhere on
// each node.
std::vector<std::string> MpirunCommand(const std::string& host_file, uint32_t world_size);

// The environment of mpirun or of a node's daemon (orted), made of the rank's own. Settings in the
// rank's environment take precedence.
Environment DaemonEnvironment(const Environment& own, const NodeOptions& node);

// The environment of a rank's program: the rank's own, with what Open MPI has set for the process
// that it started, `launched`. Settings in the rank's environment take precedence.
// `oversubscribed`: the node has fewer CPUs than ranks.
Environment ProgramEnvironment(const Environment& own, const Environment& launched,
                               const NodeOptions& node, const std::vector<std::string>& command,
                               bool oversubscribed);

}  // namespace muster::mpi

#endif  // MUSTER_WORKER_MPI_OPEN_MPI_H_
