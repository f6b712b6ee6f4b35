// Executes a rank's program in the child process that becomes the rank.
#ifndef MUSTER_WORKER_SHIM_RANK_EXEC_H_
#define MUSTER_WORKER_SHIM_RANK_EXEC_H_

#include <string>

#include "worker/shim/protocol.h"

namespace muster::shim {

// Why the program did not run. The child sends it through a pipe, so it has only plain members.
struct ExecFailure {
  enum Step : int { kUser, kCheckpointDir, kWorkdir, kExec };
  int error;  // errno
  Step step;
};

// Becomes the rank's user, makes the checkpoint directory, enters the working directory and
// executes the command, with the standard streams as its only descriptors. Returns only if one of
// these fails.
ExecFailure Exec(const Instructions& instructions);

// The rank's exit code: for kExec as in a shell, else one of common/process/exit_code.h.
int ExitCodeOf(const ExecFailure& failure);

// One line that names the path and the error.
std::string Describe(const ExecFailure& failure, const Instructions& instructions);

}  // namespace muster::shim

#endif  // MUSTER_WORKER_SHIM_RANK_EXEC_H_
