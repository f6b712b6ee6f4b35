#include "cli/local/guardian.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "common/time/deadline.h"

extern char** environ;

namespace muster::cli {
namespace {

// Time limit for each step of ending the daemons.
constexpr absl::Duration kPatience = absl::Seconds(2);
constexpr char kCoordinator[] = "coordinator";

// The daemons' environment: without Muster's variables, which may be meant for another cluster,
// except those that describe this machine.
std::vector<std::string> CleanEnvironment(const std::string& directory) {
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const bool describes_machine = absl::StartsWith(*entry, "MUSTER_NVML_LIBRARY=") ||
                                   absl::StartsWith(*entry, "MUSTER_CUDA_LIBRARY_PATH=");
    if (describes_machine || !absl::StartsWith(*entry, "MUSTER_")) environment.emplace_back(*entry);
  }
  environment.push_back(absl::StrCat("MUSTER_TOKEN_DIR=", directory, "/tokens"));
  return environment;
}

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::string LastLine(const std::string& path) {
  std::ifstream file(path);
  std::string line, last;
  while (std::getline(file, line)) {
    if (!line.empty()) last = line;
  }
  return last;
}

std::string StatusText(int status) {
  return WIFSIGNALED(status) ? absl::StrCat("was killed by signal ", WTERMSIG(status))
                             : absl::StrCat("ended with status ", WEXITSTATUS(status));
}

class Guardian {
 public:
  Guardian(const GuardianOptions& options, int socket) : options_(options), socket_(socket) {}

  void Run() {
    Settle();
    // The coordinator's state is not needed afterwards.
    std::vector<std::string> coordinator = {options_.coordinator_binary, "--listen=127.0.0.1:0",
                                            "--http=127.0.0.1:0", "--store=memory",
                                            // The job continues when this machine was suspended.
                                            "--job-lease=24h", DataDirectory(kCoordinator)};
    if (!options_.checkpoint_directory.empty()) {
      coordinator.push_back(absl::StrCat("--checkpoint-dir=", options_.checkpoint_directory));
    }
    Start(kCoordinator, std::move(coordinator));
    while (!ended_) {
      Await(absl::InfiniteDuration());
      Reap();
    }
    StopDaemons();
    KillTheRest();
    std::error_code error;
    if (!options_.keep_directory) std::filesystem::remove_all(options_.directory, error);
  }

 private:
  // Detach from the terminal, become the parent of all orphans below, and receive signals only in
  // Await.
  void Settle() {
    setsid();
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    const int null = open("/dev/null", O_RDWR);
    for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(null, fd);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) std::signal(signal, SIG_DFL);
    sigset_t signals;
    sigemptyset(&signals);
    for (const int signal : {SIGCHLD, SIGTERM, SIGINT, SIGHUP}) sigaddset(&signals, signal);
    sigprocmask(SIG_BLOCK, &signals, &mask_before_);
    signals_ = signalfd(-1, &signals, SFD_CLOEXEC);
  }

  std::string DataDirectory(const std::string& name) const {
    return absl::StrCat("--data-dir=", options_.directory, "/", name);
  }
  std::string LogOf(const std::string& name) const {
    return absl::StrCat(options_.directory, "/", name, ".log");
  }

  void Start(const std::string& name, std::vector<std::string> arguments) {
    int output[2];
    if (pipe2(output, O_CLOEXEC) != 0) return Fail(absl::StrCat("pipe: ", strerror(errno)));
    std::vector<std::string> environment = CleanEnvironment(options_.directory);
    const int log = open(LogOf(name).c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    const pid_t guardian = getpid();
    const pid_t pid = fork();
    if (pid == 0) {
      // If the guardian itself is killed, its daemons shut down.
      prctl(PR_SET_PDEATHSIG, SIGTERM);
      if (getppid() != guardian) _exit(1);
      sigprocmask(SIG_SETMASK, &mask_before_, nullptr);
      dup2(output[1], STDOUT_FILENO);
      dup2(log, STDERR_FILENO);
      execve(arguments[0].c_str(), Pointers(arguments).data(), Pointers(environment).data());
      const std::string text = absl::StrCat(arguments[0], ": ", strerror(errno), "\n");
      [[maybe_unused]] const ssize_t n = write(STDERR_FILENO, text.data(), text.size());
      _exit(127);
    }
    close(output[1]);
    close(log);
    if (pid < 0) {
      close(output[0]);
      return Fail(absl::StrCat("fork: ", strerror(errno)));
    }
    daemons_[pid] = name;
    if (name == kCoordinator) {
      coordinator_output_ = output[0];
    } else {
      close(output[0]);
    }
  }

  // Returns after an event, or after `patience`.
  void Await(absl::Duration patience) {
    pollfd fds[] = {{signals_, POLLIN, 0},
                    {ended_ ? -1 : socket_, POLLIN, 0},
                    {coordinator_output_, POLLIN, 0}};
    const int timeout_ms = patience == absl::InfiniteDuration()
                               ? -1
                               : static_cast<int>(absl::ToInt64Milliseconds(patience)) + 1;
    if (poll(fds, 3, timeout_ms) <= 0) return;
    signalfd_siginfo info;
    if (fds[0].revents != 0 && read(signals_, &info, sizeof(info)) == sizeof(info) &&
        info.ssi_signo != SIGCHLD) {
      ended_ = true;
    }
    // The other end never sends, so it was closed.
    if (fds[1].revents != 0) ended_ = true;
    if (fds[2].revents != 0) ReadCoordinator();
  }

  void ReadCoordinator() {
    char buffer[4096];
    const ssize_t size = read(coordinator_output_, buffer, sizeof(buffer));
    if (size <= 0) {
      close(coordinator_output_);
      coordinator_output_ = -1;
      return;
    }
    if (!address_.empty()) return;
    printed_.append(buffer, size);
    const size_t end = printed_.find('\n');
    if (end == std::string::npos) return;
    for (const absl::string_view word : absl::StrSplit(printed_.substr(0, end), ' ')) {
      if (absl::StartsWith(word, "grpc=")) address_ = std::string(word.substr(5));
    }
    if (address_.empty())
      return Fail(absl::StrCat("the coordinator did not start; its output: ", printed_));
    for (uint32_t i = 1; i <= options_.nodes; ++i) {
      const std::string name = options_.nodes == 1 ? "local" : absl::StrCat("local-", i);
      // Several workers would each report the same GPUs.
      const char* const devices = options_.nodes == 1 ? "auto" : "cpu";
      Start(name, {options_.worker_binary, absl::StrCat("--coordinator=", address_),
                   absl::StrCat("--name=", name), absl::StrCat("--slots=", options_.slots),
                   absl::StrCat("--devices=", devices), "--inherit-env=all", DataDirectory(name)});
    }
    WriteLine(absl::StrCat(kReadyWord, address_));
  }

  void Reap() {
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
      const auto daemon = daemons_.find(pid);
      if (daemon == daemons_.end()) continue;  // an orphaned descendant
      const std::string name = daemon->second;
      daemons_.erase(daemon);
      if (ended_) continue;
      std::string text = absl::StrCat(name == kCoordinator ? "the coordinator " : "the worker ",
                                      StatusText(status));
      const std::string word = LastLine(LogOf(name));
      if (!word.empty()) absl::StrAppend(&text, ": ", word);
      Fail(text);
    }
  }

  void Fail(const std::string& text) {
    WriteLine(absl::StrCat(kFailedWord, text));
    ended_ = true;
  }

  void WriteLine(const std::string& line) {
    const std::string text = line + "\n";
    send(socket_, text.data(), text.size(), MSG_NOSIGNAL);
  }

  // Signals the selected daemons and waits for them. Returns true when none of them is left.
  bool Stop(bool coordinator, int signal) {
    const auto left = [this, coordinator] {
      return std::any_of(daemons_.begin(), daemons_.end(), [coordinator](const auto& daemon) {
        return (daemon.second == kCoordinator) == coordinator;
      });
    };
    for (const auto& [pid, name] : daemons_) {
      if ((name == kCoordinator) == coordinator) kill(pid, signal);
    }
    const Deadline deadline(kPatience);
    while (left() && !deadline.passed()) {
      Await(deadline.left());
      Reap();
    }
    return !left();
  }

  void StopDaemons() {
    ended_ = true;
    // After a second signal, a worker ends its ranks without grace.
    if (!Stop(/*coordinator=*/false, SIGTERM)) Stop(/*coordinator=*/false, SIGTERM);
    Stop(/*coordinator=*/true, SIGTERM);
  }

  // Children of a killed process become children of this one, and are found in the next round.
  void KillTheRest() {
    const std::string children = absl::StrCat("/proc/self/task/", getpid(), "/children");
    while (true) {
      std::ifstream file(children);
      for (pid_t pid; file >> pid;) kill(pid, SIGKILL);
      if (waitpid(-1, nullptr, 0) < 0 && errno == ECHILD) return;
    }
  }

  const GuardianOptions options_;
  const int socket_;
  sigset_t mask_before_;
  int signals_ = -1;
  std::map<pid_t, std::string> daemons_;  // names by pid
  int coordinator_output_ = -1;
  std::string printed_;  // output of the coordinator
  std::string address_;
  bool ended_ = false;
};

}  // namespace

void RunGuardian(const GuardianOptions& options, int socket) {
  Guardian(options, socket).Run();
  _exit(0);
}

}  // namespace muster::cli
