// The process that Open MPI starts in place of a rank's program; see rank_process.h.
#ifndef MUSTER_WORKER_MPI_PROXY_H_
#define MUSTER_WORKER_MPI_PROXY_H_

#include <cstdint>
#include <string>

#include "worker/mpi/open_mpi.h"

namespace muster::mpi {

// Hands `environment` over to the rank with this local rank, and waits for the end of its program.
// Returns its status as of waitpid, or that of a process killed with SIGKILL if the rank has ended
// without one. Passes SIGTERM and other signals that ask a process to end on to the rank; takes
// over the signals of the process.
int RunProxy(const std::string& directory, uint32_t local_rank, const Environment& environment);

}  // namespace muster::mpi

#endif  // MUSTER_WORKER_MPI_PROXY_H_
