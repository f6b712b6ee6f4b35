#include "worker/shim/rank/exec.h"

#include <linux/close_range.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "common/process/exit_code.h"
#include "worker/shim/credentials.h"
#include "worker/shim/program.h"

namespace muster::shim {
namespace {

// The error of a failed exec, with details for names without a path and for scripts.
std::string DescribeExec(const Instructions& instructions, int error) {
  const std::string& program = instructions.command.front();
  std::string text = "exec " + program + ": ";
  if (error != ENOENT) return text + std::strerror(error);
  if (program.find('/') == std::string::npos) {
    for (const std::string& entry : instructions.environment) {
      if (entry.rfind("PATH=", 0) == 0) return text + "not found in " + entry;
    }
    return text + "not found: PATH is not set";
  }
  const std::string path = program[0] == '/' ? program : instructions.workdir + "/" + program;
  if (access(path.c_str(), F_OK) == 0) {
    return text + "the interpreter named in its first line, or its loader, does not exist";
  }
  return text + std::strerror(error) +
         (program[0] == '/' ? "" : " in workdir " + instructions.workdir);
}

// Creates the directory if it is missing, and checks that it can be written. Its parent must exist:
// on a node that has not mounted the shared file system, a directory must not take its place.
// Returns 0 or errno.
int MakeCheckpointDir(const std::string& path) {
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return errno;
  // "/.", so that a file in its place is an error.
  return access((path + "/.").c_str(), W_OK | X_OK) == 0 ? 0 : errno;
}

}  // namespace

ExecFailure Exec(const Instructions& instructions) {
  // All are opened with O_CLOEXEC; this is for one that is not.
  syscall(SYS_close_range, STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC);
  if (instructions.user.has_value()) {
    GiveStreams(*instructions.user);
    const int error = DropPrivileges(*instructions.user);
    if (error != 0) return {error, ExecFailure::kUser};
  }
  if (!instructions.checkpoint_dir.empty()) {
    const int error = MakeCheckpointDir(instructions.checkpoint_dir);
    if (error != 0) return {error, ExecFailure::kCheckpointDir};
  }
  if (!instructions.workdir.empty() && chdir(instructions.workdir.c_str()) != 0) {
    return {errno, ExecFailure::kWorkdir};
  }
  ExecProgram(instructions.command, instructions.environment);
  return {errno, ExecFailure::kExec};
}

int ExitCodeOf(const ExecFailure& failure) {
  switch (failure.step) {
    case ExecFailure::kUser:
      return kExitNotAllowed;
    case ExecFailure::kCheckpointDir:
      return kExitCannotCreate;
    case ExecFailure::kWorkdir:
      return failure.error == EACCES ? kExitNotAllowed : kExitNoInput;
    case ExecFailure::kExec:
      break;
  }
  return failure.error == ENOENT ? kExitNotFound : kExitCannotExecute;
}

std::string Describe(const ExecFailure& failure, const Instructions& instructions) {
  switch (failure.step) {
    case ExecFailure::kUser:
      return "cannot run as the user with uid " + std::to_string(instructions.user->uid) + ": " +
             std::strerror(failure.error);
    case ExecFailure::kCheckpointDir:
      return "checkpoint directory " + instructions.checkpoint_dir + ": " +
             std::strerror(failure.error) +
             (failure.error == ENOENT ? "; its parent must exist on every node" : "");
    case ExecFailure::kWorkdir:
      return "workdir " + instructions.workdir + ": " + std::strerror(failure.error);
    case ExecFailure::kExec:
      break;
  }
  return DescribeExec(instructions, failure.error);
}

}  // namespace muster::shim
