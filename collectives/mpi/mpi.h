// The mpi backend: processes that an MPI's launcher has started, over whatever connects them.
#ifndef MUSTER_COLLECTIVES_MPI_MPI_H_
#define MUSTER_COLLECTIVES_MPI_MPI_H_

#include <memory>

#include "absl/status/statusor.h"
#include "collectives/communicator.h"

namespace muster::collectives {

// MPI moves the bytes, from process to process; the algorithms are ours, because MPI's own
// reductions may differ in their last bits from rank to rank, have no bfloat16, and cannot say who
// is missing. Every rank talks to every other one: sums are in the order of ranks.
//
// Ranks are found through options.store: each says which process of MPI_COMM_WORLD it is. Blocks
// until all ranks of the group have called; those of one process are made one after the other, in
// the same order everywhere.
//
// An error or an Abort ends MPI for the process, all its groups with it: UNAVAILABLE from then on.
// That process exits without MPI_Finalize, upon which mpirun ends the others: training goes on from
// a checkpoint. A killed process needs no error, mpirun ends the others then too.
//
// Errors: NOT_FOUND and FAILED_PRECONDITION as of MpiProgressThread::Get, the latter also where
// ranks are of several MPI jobs; DEADLINE_EXCEEDED names the ranks that did not come within
// connect_timeout, or have not taken part within timeout; UNAVAILABLE with MPI's words; what the
// key store returns.
absl::StatusOr<std::unique_ptr<Communicator>> CreateMpi(const GroupOptions& options);

}  // namespace muster::collectives

#endif  // MUSTER_COLLECTIVES_MPI_MPI_H_
