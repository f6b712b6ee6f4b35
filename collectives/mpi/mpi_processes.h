// Maps the ranks of a group to the processes of an MPI job.
#ifndef MUSTER_COLLECTIVES_MPI_MPI_PROCESSES_H_
#define MUSTER_COLLECTIVES_MPI_MPI_PROCESSES_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "collectives/communicator.h"
#include "collectives/mpi/mpi_progress_thread.h"

namespace muster::collectives {

// Publishes this rank's process in options.store and returns the group's processes in
// MPI_COMM_WORLD, by rank. DEADLINE_EXCEEDED names the ranks that did not publish theirs within
// connect_timeout; FAILED_PRECONDITION: a rank belongs to another MPI job; INVALID_ARGUMENT: two
// ranks share one process.
absl::StatusOr<std::vector<uint32_t>> FindMpiProcesses(const GroupOptions& options,
                                                       const MpiProgressThread& thread);

}  // namespace muster::collectives

#endif  // MUSTER_COLLECTIVES_MPI_MPI_PROCESSES_H_
