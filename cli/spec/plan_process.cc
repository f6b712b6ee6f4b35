#include "cli/spec/plan_process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "cli/exit_code.h"
#include "common/status.h"

extern char** environ;

namespace muster::cli {
namespace {

// An anonymous file that contains `bytes`, so that no thread has to write while the program reads.
absl::StatusOr<int> FileWith(const std::string& bytes) {
  const int fd = memfd_create("spec", MFD_CLOEXEC);
  if (fd < 0) return ErrnoStatus(errno, "memfd_create");
  size_t written = 0;
  while (written < bytes.size()) {
    const ssize_t size = write(fd, bytes.data() + written, bytes.size() - written);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) {
      const absl::Status status = ErrnoStatus(errno, "write the spec");
      close(fd);
      return status;
    }
    written += static_cast<size_t>(size);
  }
  lseek(fd, 0, SEEK_SET);
  return fd;
}

// Starts the program with `in` and `out` as its stdin and stdout.
absl::StatusOr<pid_t> Spawn(const std::string& program, const PlanRequest& request, int in,
                            int out) {
  const std::string ranks = absl::StrCat("--ranks=", request.ranks);
  const std::string device = absl::StrCat("--device=", request.device);
  std::vector<const char*> argv = {program.c_str(), "--explain-plan", ranks.c_str()};
  if (request.time) argv.push_back("--time");
  if (request.kernels) argv.push_back("--kernels");
  if (!request.device.empty()) argv.push_back(device.c_str());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
  pid_t pid = 0;
  const int error = posix_spawn(&pid, program.c_str(), &actions, nullptr,
                                const_cast<char* const*>(argv.data()), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return ErrnoStatus(error, absl::StrCat("start ", program));
  return pid;
}

std::string ReadAll(int fd) {
  std::string bytes;
  char buffer[1 << 16];
  while (true) {
    const ssize_t size = read(fd, buffer, sizeof(buffer));
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return bytes;
    bytes.append(buffer, static_cast<size_t>(size));
  }
}

// Maps the exit code of muster-rank to a status.
absl::Status ErrorOf(int exit_code, const std::string& message) {
  if (exit_code == kExitBadSpec) return absl::InvalidArgumentError(message);
  if (exit_code == kExitNoInput) return absl::NotFoundError(message);
  return absl::InternalError(message);
}

}  // namespace

absl::StatusOr<v1::PlanReport> RequestPlan(const std::string& program, const PlanRequest& request) {
  ASSIGN_OR_RETURN(const int in, FileWith(request.spec.SerializeAsString()));
  const auto close_in = absl::MakeCleanup([in] { close(in); });
  int pipe_ends[2];
  if (pipe2(pipe_ends, O_CLOEXEC) != 0) return ErrnoStatus(errno, "pipe");
  const auto close_out = absl::MakeCleanup([fd = pipe_ends[0]] { close(fd); });
  const absl::StatusOr<pid_t> pid = Spawn(program, request, in, pipe_ends[1]);
  close(pipe_ends[1]);
  RETURN_IF_ERROR(pid.status());
  const std::string bytes = ReadAll(pipe_ends[0]);
  int status = 0;
  while (waitpid(*pid, &status, 0) < 0 && errno == EINTR) {
  }

  v1::PlanAnswer answer;
  if (!WIFEXITED(status) || !answer.ParseFromString(bytes) ||
      answer.answer_case() == v1::PlanAnswer::ANSWER_NOT_SET) {
    const std::string how = WIFSIGNALED(status)
                                ? absl::StrCat("was killed by signal ", WTERMSIG(status))
                                : "exited without an answer";
    return absl::InternalError(absl::StrCat(program, " ", how));
  }
  if (answer.has_error()) return ErrorOf(WEXITSTATUS(status), answer.error());
  return answer.report();
}

int PlanExitCode(const absl::Status& status) {
  if (absl::IsInvalidArgument(status)) return kExitBadSpec;
  return absl::IsNotFound(status) ? kExitNoInput : kExitFailure;
}

}  // namespace muster::cli
