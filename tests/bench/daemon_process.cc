#include "tests/bench/daemon_process.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/status.h"

namespace muster::bench {

std::string BuiltProgram(const std::string& path) {
  std::string self(4096, '\0');
  self.resize(std::max<ssize_t>(0, readlink("/proc/self/exe", self.data(), self.size())));
  return std::filesystem::path(self).parent_path() / "../.." / path;
}

absl::StatusOr<std::unique_ptr<TemporaryDirectory>> TemporaryDirectory::Make() {
  const char* const parent = getenv("TMPDIR");
  std::string path = absl::StrCat(parent == nullptr ? "/tmp" : parent, "/muster-bench.XXXXXX");
  if (mkdtemp(path.data()) == nullptr) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot create ", path));
  }
  return absl::WrapUnique(new TemporaryDirectory(std::move(path)));
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

absl::StatusOr<std::unique_ptr<DaemonProcess>> DaemonProcess::Start(std::vector<std::string> argv,
                                                                    const std::string& log_path) {
  if (access(argv[0].c_str(), X_OK) != 0) {
    return absl::NotFoundError(absl::StrCat(argv[0], " cannot be executed; build it first"));
  }
  std::vector<char*> pointers;
  for (std::string& argument : argv) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  int output[2];
  if (pipe2(output, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "pipe");
  const int log = open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  const pid_t parent = getpid();
  auto process = absl::WrapUnique(new DaemonProcess);
  process->pid_ = fork();
  if (process->pid_ == 0) {
    // Other threads may exist, so only system calls are allowed here.
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(1);
    dup2(output[1], STDOUT_FILENO);
    dup2(log, STDERR_FILENO);
    execv(pointers[0], pointers.data());
    _exit(127);
  }
  const int fork_error = errno;
  close(output[1]);
  close(log);
  const absl::Status status = process->pid_ < 0 ? absl::ErrnoToStatus(fork_error, "fork")
                                                : process->AwaitListening(output[0], log_path);
  close(output[0]);
  if (!status.ok()) return status;
  return process;
}

absl::Status DaemonProcess::AwaitListening(int output, const std::string& log_path) {
  std::string line;
  char byte = 0;
  while (read(output, &byte, 1) == 1 && byte != '\n') line += byte;
  for (const absl::string_view word : absl::StrSplit(line, ' ')) {
    const std::pair<std::string, std::string> address =
        absl::StrSplit(word, absl::MaxSplits('=', 1));
    addresses_.insert(address);
  }
  if (absl::StartsWith(line, "listening ")) return absl::OkStatus();
  std::ifstream log(log_path);
  return absl::UnavailableError(absl::StrCat("daemon did not start: ", line, "\n",
                                             std::string(std::istreambuf_iterator<char>(log), {})));
}

DaemonProcess::~DaemonProcess() {
  if (pid_ <= 0) return;
  kill(pid_, SIGTERM);
  waitpid(pid_, nullptr, 0);
}

absl::Duration DaemonProcess::CpuTime() const {
  clockid_t clock;
  timespec used{};
  if (clock_getcpuclockid(pid_, &clock) != 0 || clock_gettime(clock, &used) != 0) {
    return absl::ZeroDuration();
  }
  return absl::DurationFromTimespec(used);
}

uint64_t DaemonProcess::ResidentBytes() const {
  std::ifstream statm(absl::StrCat("/proc/", pid_, "/statm"));
  uint64_t size_pages = 0;
  uint64_t resident_pages = 0;
  statm >> size_pages >> resident_pages;
  return resident_pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

absl::StatusOr<std::unique_ptr<DaemonProcess>> StartCoordinator(const std::string& program,
                                                                const std::string& directory) {
  return DaemonProcess::Start({program, "--listen=127.0.0.1:0", "--http=127.0.0.1:0",
                               absl::StrCat("--data-dir=", directory, "/coordinator")},
                              directory + "/coordinator.log");
}

}  // namespace muster::bench
