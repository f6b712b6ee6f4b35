#include "worker/shim/hang/inspect.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "common/files/replace_file.h"
#include "common/limits.h"
#include "worker/shim/clock.h"
#include "worker/shim/fields.h"
#include "worker/shim/hang/backtrace.h"
#include "worker/shim/hang/wait_state.h"

namespace muster::shim {
namespace {

constexpr unsigned kInspectionSeconds = 8;
constexpr int64_t kPySpyMs = 2000;
constexpr size_t kPySpyBytes = limits::kStackBytes / 2;
// Limits of an answer from a process of the rank's user.
constexpr size_t kWordBytes = 32;
constexpr size_t kAnswerBytes = limits::kStackBytes + 4096;

// PATH of the rank, or "". The shim itself is started without one.
std::string PathOf(pid_t pid) {
  const std::string environment =
      ReadFile("/proc/" + std::to_string(pid) + "/environ").value_or("");
  for (size_t at = 0; at < environment.size();) {
    const char* const entry = environment.c_str() + at;
    if (std::strncmp(entry, "PATH=", 5) == 0) return entry + 5;
    at += std::strlen(entry) + 1;
  }
  return "";
}

// Runs `py-spy dump`; empty if it is not installed, fails or takes too long. It does not stop the
// rank, whose stacks do not change while it hangs.
std::string RunPySpy(pid_t pid) {
  OwnedFd reader;
  OwnedFd writer;
  if (!OpenPipe(reader, writer)) return "";
  const std::string path = PathOf(pid);
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!path.empty()) setenv("PATH", path.c_str(), 1);
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    dup2(null, STDIN_FILENO);
    dup2(writer.get(), STDOUT_FILENO);
    dup2(null, STDERR_FILENO);
    const std::string number = std::to_string(pid);
    execlp("py-spy", "py-spy", "dump", "--nonblocking", "--pid", number.c_str(), nullptr);
    _exit(127);
  }
  writer.Close();
  std::string output;
  const int64_t deadline = MonotonicMs() + kPySpyMs;
  while (child > 0 && output.size() < kPySpyBytes) {
    const int64_t left_ms = deadline - MonotonicMs();
    pollfd readable = {reader.get(), POLLIN, 0};
    if (left_ms <= 0 || poll(&readable, 1, static_cast<int>(left_ms)) <= 0) break;
    char buffer[4096];
    const ssize_t n = read(reader.get(), buffer, sizeof(buffer));
    if (n <= 0) break;
    output.append(buffer, static_cast<size_t>(n));
  }
  reader.Close();
  if (child > 0) kill(child, SIGKILL);
  while (child > 0 && waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  return output;
}

// Classifies the wait of the main thread by its innermost function. For a thread that has been
// traced before: it is in restart_syscall, whose kernel entry does not show what it continues.
std::string FromFunction(const std::string& stack) {
  constexpr char kHeader[] = "main thread:\n";
  const size_t header = stack.find(kHeader);
  if (header == std::string::npos) return "";
  const size_t begin = header + sizeof(kHeader) - 1;
  const std::string frame = stack.substr(begin, stack.find('\n', begin) - begin);
  struct Entry {
    const char* part;
    const char* waits_in;
  };
  constexpr Entry kEntries[] = {{"nanosleep", "sleep"},
                                {"poll", "poll"},
                                {"select", "poll"},
                                {"pthread_", "futex"},
                                {"sem_", "futex"}};
  for (const Entry& entry : kEntries) {
    if (frame.find(entry.part) != std::string::npos) return entry.waits_in;
  }
  return "";
}

}  // namespace

std::string Printable(std::string text) {
  for (char& c : text) {
    if (c != '\n' && (c < ' ' || c > '~')) c = '?';
  }
  return text;
}

std::string FromPySpy(const std::string& output) {
  std::string main;
  std::string others;
  std::string main_id;  // "Thread 4711 "
  std::string* stack = nullptr;
  size_t at = 0;
  while (at < output.size()) {
    size_t newline = output.find('\n', at);
    if (newline == std::string::npos) newline = output.size();
    const std::string line = output.substr(at, newline - at);
    at = newline + 1;
    if (line.rfind("Process ", 0) == 0) {
      // Process 4711: python3 train.py
      main_id = "Thread " + line.substr(8, line.find(':') - 8) + " ";
    } else if (line.rfind("Thread ", 0) == 0) {
      // Thread 4711 (idle): "MainThread"; without a name if the program does not import threading.
      const bool is_main = line.find("\"MainThread\"") != std::string::npos ||
                           (!main_id.empty() && line.rfind(main_id, 0) == 0);
      stack = is_main ? &main : &others;
      *stack += (is_main ? "main thread" : "thread" + line.substr(6)) + ", Python:\n";
    } else if (stack != nullptr && line.rfind("    ", 0) == 0) {
      *stack += "  " + line.substr(4) + "\n";
    }
  }
  return main + others;
}

Inspection Inspect(pid_t pid, double cpu_ratio) {
  Inspection inspection;
  inspection.cpu_ratio = cpu_ratio;
  pid = WorkingProcess(pid);
  inspection.state = ProcessState(pid);
  // A stopped process is left alone: its state explains the hang.
  if (inspection.state == "stopped" || inspection.state == "zombie" || inspection.state == "gone") {
    return inspection;
  }
  inspection.waits_in = WaitsIn(pid);
  inspection.stack = FromPySpy(RunPySpy(pid));
  inspection.stack += NativeStacks(pid, limits::kStackBytes - inspection.stack.size());
  if (inspection.waits_in.empty() && inspection.state == "sleeping") {
    inspection.waits_in = FromFunction(inspection.stack);
  }
  inspection.stack = Printable(std::move(inspection.stack));
  return inspection;
}

namespace {

// The answer of the user's process, within the bounds that Inspect guarantees.
Inspection Bounded(Inspection inspection) {
  for (std::string* text : {&inspection.state, &inspection.waits_in}) {
    *text = Printable(text->substr(0, kWordBytes));
  }
  inspection.stack = Printable(inspection.stack.substr(0, limits::kStackBytes));
  return inspection;
}

// Inspects in a child process that is one of the user.
std::optional<Inspection> InspectAs(const Credentials& user, pid_t rank, double cpu_ratio) {
  OwnedFd reader;
  OwnedFd writer;
  if (!OpenPipe(reader, writer)) return std::nullopt;
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    reader.Close();
    alarm(kInspectionSeconds);
    if (DropPrivileges(user) != 0) _exit(1);
    const std::string text = EncodeInspection(Inspect(rank, cpu_ratio));
    _exit(WriteAll(writer.get(), text) ? 0 : 1);
  }
  writer.Close();
  std::string text;
  char buffer[4096];
  while (child > 0 && text.size() <= kAnswerBytes) {
    const ssize_t n = read(reader.get(), buffer, sizeof(buffer));
    if (n <= 0) break;
    text.append(buffer, static_cast<size_t>(n));
  }
  reader.Close();
  if (child > 0) kill(child, SIGKILL);
  while (child > 0 && waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  std::optional<Inspection> inspection = DecodeInspection(text);
  if (inspection.has_value()) inspection = Bounded(*std::move(inspection));
  return inspection;
}

}  // namespace

pid_t StartInspector(pid_t rank, const std::optional<Credentials>& user, double cpu_ratio,
                     const std::string& path) {
  unlink(path.c_str());
  const pid_t shim = getpid();
  const pid_t child = fork();
  if (child != 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != shim) _exit(1);
  // The worker must see the end of the shim's connections even while an inspection runs.
  syscall(SYS_close_range, STDERR_FILENO + 1, ~0U, 0);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  alarm(kInspectionSeconds);
  const std::optional<Inspection> inspection =
      user.has_value() ? InspectAs(*user, rank, cpu_ratio) : Inspect(rank, cpu_ratio);
  if (inspection.has_value()) WriteFileAtomically(path, EncodeInspection(*inspection), false);
  _exit(0);
}

}  // namespace muster::shim
