// How mpirun on the first node of a job starts its daemons on the others, without ssh: over the
// generation's write-once keys.
//
//   first rank of each other node     mpi/ranks/N = number of its ranks
//   first rank of the first node      waits for all of them and starts mpirun
//   muster-mpi remote-shell           mpi/daemon/N = command line of the daemon of node rank N
//   first rank of each other node     waits for it and starts the daemon
#ifndef MUSTER_WORKER_MPI_DAEMON_EXCHANGE_H_
#define MUSTER_WORKER_MPI_DAEMON_EXCHANGE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/mpi/rank_process.h"

namespace muster::mpi {

// The keys of RankKeys; other ones in tests.
struct KeyFunctions {
  std::function<absl::Status(const std::string& key, const std::string& value)> put;
  std::function<absl::StatusOr<std::string>(const std::string& key)> get;
};

// Place of the first rank of a node.
struct FirstRank {
  uint32_t node_rank = 0;
  uint32_t node_count = 1;
  uint32_t ranks_of_node = 1;
  uint32_t world_size = 1;
  std::string directory;  // NodeOptions::directory
};

// The daemon that the first rank of a node runs: mpirun, whose host file it writes, or, once mpirun
// has sent it, the command of the node's orted. Blocks until the other nodes are ready. Errors of
// the keys and of errno.
absl::StatusOr<OpenMpiDaemon> AwaitDaemon(const FirstRank& rank, const KeyFunctions& keys);

// Replaces ssh for mpirun: sends the command to the node `host`.
// INVALID_ARGUMENT if the host is not of HostFile.
absl::Status SendDaemonCommand(const std::string& host, const std::vector<std::string>& arguments,
                               const KeyFunctions& keys);

}  // namespace muster::mpi

#endif  // MUSTER_WORKER_MPI_DAEMON_EXCHANGE_H_
