// Starts a program as a child that ends with this process.
#ifndef MUSTER_WORKER_MPI_CHILD_PROGRAM_H_
#define MUSTER_WORKER_MPI_CHILD_PROGRAM_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "worker/mpi/open_mpi.h"

namespace muster::mpi {

struct StartedChild {
  pid_t pid = 0;  // 0: it could not be started
  // If it could not be started.
  std::string error;
  int exit_code = 0;  // as in a shell: kExitNotFound, kExitCannotExecute
};

// Searches for the program in the PATH of `environment`; signals have their default handling in it.
// `own_group`: in a process group of its own, so that the stop signal, which goes to the group of
// the rank, does not reach it. Call it on the main thread: the child is killed when the calling
// thread ends.
StartedChild StartChild(const std::vector<std::string>& command, const Environment& environment,
                        bool own_group);

}  // namespace muster::mpi

#endif  // MUSTER_WORKER_MPI_CHILD_PROGRAM_H_
