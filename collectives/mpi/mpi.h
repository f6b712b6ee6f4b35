// The mpi backend: processes started by an MPI launcher, over any transport that MPI supports.
#ifndef MUSTER_COLLECTIVES_MPI_MPI_H_
#define MUSTER_COLLECTIVES_MPI_MPI_H_

#include <memory>

#include "absl/status/statusor.h"
#include "collectives/communicator.h"

namespace muster::collectives {

// MPI moves the data from process to process; the algorithms are implemented here, because MPI's
// own reductions may differ in their last bits from rank to rank, do not support bfloat16, and
// cannot identify missing ranks. Every rank communicates with every other; sums are in rank order.
//
// Each rank publishes its process in MPI_COMM_WORLD through options.store. Blocks until all ranks
// of the group have called; a process must create its groups one after the other, in the same order
// on all ranks.
//
// An error or an Abort ends MPI for the process and all its groups: UNAVAILABLE from then on. The
// process exits without MPI_Finalize, upon which mpirun ends the others; training resumes from a
// checkpoint. When a process is killed, mpirun ends the others as well.
//
// Errors: NOT_FOUND and FAILED_PRECONDITION as of MpiProgressThread::Get, the latter also if ranks
// belong to several MPI jobs; DEADLINE_EXCEEDED names the ranks that did not connect within
// connect_timeout, or did not take part within timeout; UNAVAILABLE with MPI's message; errors of
// the key store.
absl::StatusOr<std::unique_ptr<Communicator>> CreateMpi(const GroupOptions& options);

}  // namespace muster::collectives

#endif  // MUSTER_COLLECTIVES_MPI_MPI_H_
