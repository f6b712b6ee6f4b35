#include "worker/mpi/child_program.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/files/owned_fd.h"
#include "common/process/environment_value.h"
#include "common/process/exit_code.h"
#include "worker/shim/program.h"

namespace muster::mpi {
namespace {

[[noreturn]] void Become(const std::vector<std::string>& command, const Environment& environment,
                         bool own_group, pid_t parent, int report) {
  if (own_group) setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(kExitFailure);
  shim::ResetSignals();
  shim::ExecProgram(command, environment);
  const int error = errno;
  [[maybe_unused]] const ssize_t n = write(report, &error, sizeof(error));
  _exit(kExitCannotExecute);
}

StartedChild Failure(const std::string& program, const Environment& environment, int error) {
  StartedChild failure;
  failure.error = absl::StrCat("exec ", program, ": ", std::strerror(error));
  if (error == ENOENT && program.find('/') == std::string::npos) {
    failure.error = absl::StrCat("exec ", program,
                                 ": not found in PATH=", EnvironmentValue(environment, "PATH"));
  }
  failure.exit_code = error == ENOENT ? kExitNotFound : kExitCannotExecute;
  return failure;
}

}  // namespace

StartedChild StartChild(const std::vector<std::string>& command, const Environment& environment,
                        bool own_group) {
  OwnedFd result;
  OwnedFd report;
  if (!OpenPipe(result, report)) return Failure(command.front(), environment, errno);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) Become(command, environment, own_group, parent, report.get());
  int error = pid < 0 ? errno : 0;
  report.Close();
  if (pid > 0) {
    ssize_t n = 0;
    do {
      n = read(result.get(), &error, sizeof(error));
    } while (n < 0 && errno == EINTR);
    if (n != sizeof(error)) error = 0;
    if (error != 0) waitpid(pid, nullptr, 0);
  }
  if (error != 0) return Failure(command.front(), environment, error);
  return {.pid = pid};
}

}  // namespace muster::mpi
