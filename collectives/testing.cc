#include "collectives/testing.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/status.h"

namespace muster::collectives {

FileKeyStore::FileKeyStore() : owner_(getpid()) {
  const char* parent = std::getenv("TEST_TMPDIR");
  std::string path = absl::StrCat(parent != nullptr ? parent : "/tmp", "/muster-keys-XXXXXX");
  if (mkdtemp(path.data()) != nullptr) directory_ = path;
}

FileKeyStore::FileKeyStore(const std::string& directory) : owner_(-1), directory_(directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
}

FileKeyStore::~FileKeyStore() {
  std::error_code error;
  if (getpid() == owner_ && !directory_.empty()) std::filesystem::remove_all(directory_, error);
}

std::string FileKeyStore::PathOf(absl::string_view key) const {
  return absl::StrCat(directory_, "/", absl::WebSafeBase64Escape(key));
}

absl::Status FileKeyStore::Put(absl::string_view key, absl::string_view value) {
  static std::atomic<int> writes{0};
  const std::string temporary = absl::StrCat(directory_, "/.", getpid(), "-", ++writes);
  std::ofstream(temporary) << value;
  if (rename(temporary.c_str(), PathOf(key).c_str()) != 0) return ErrnoStatus(errno, "rename");
  return absl::OkStatus();
}

absl::StatusOr<std::string> FileKeyStore::Read(const std::string& path) const {
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

absl::StatusOr<std::string> FileKeyStore::Get(absl::string_view key, absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  const std::string path = PathOf(key);
  absl::StatusOr<std::string> value = Read(path);
  if (value.ok()) return value;
  const int watch = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
  inotify_add_watch(watch, directory_.c_str(), IN_MOVED_TO);
  for (;;) {
    value = Read(path);
    const absl::Duration left = deadline - absl::Now();
    if (value.ok() || left <= absl::ZeroDuration()) break;
    pollfd poller = {watch, POLLIN, 0};
    poll(&poller, 1, static_cast<int>(absl::ToInt64Milliseconds(left)) + 1);
    char events[4096];
    while (read(watch, events, sizeof(events)) > 0) {
    }
  }
  close(watch);
  if (value.ok()) return value;
  return absl::DeadlineExceededError(absl::StrCat("no key ", key));
}

namespace {

struct RankProcess {
  pid_t pid = -1;
  int pidfd = -1;
  int output = -1;
  bool ended = false;
};

RankProcess Fork(uint32_t rank, const std::function<absl::Status(uint32_t)>& body) {
  int pipes[2];
  RankProcess process;
  if (pipe2(pipes, O_CLOEXEC) != 0) return process;
  process.pid = fork();
  if (process.pid == 0) {
    const absl::Status status = body(rank);
    const std::string text = status.ok() ? "" : status.ToString();
    const bool written = write(pipes[1], text.data(), text.size()) >= 0;
    _exit(written ? 0 : 1);
  }
  close(pipes[1]);
  process.output = pipes[0];
  process.pidfd = static_cast<int>(syscall(SYS_pidfd_open, process.pid, 0));
  return process;
}

bool Stopped(pid_t pid) {
  siginfo_t info = {};
  return waitid(P_PID, static_cast<id_t>(pid), &info, WSTOPPED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == pid;
}

std::string Reap(const RankProcess& process) {
  std::string text;
  char buffer[4096];
  for (ssize_t n; (n = read(process.output, buffer, sizeof(buffer))) > 0;) text.append(buffer, n);
  close(process.output);
  close(process.pidfd);
  int status = 0;
  waitpid(process.pid, &status, 0);
  if (WIFSIGNALED(status)) return absl::StrCat("signal ", WTERMSIG(status));
  return text;
}

}  // namespace

std::vector<std::string> RunRankProcesses(uint32_t size,
                                          const std::function<absl::Status(uint32_t)>& body,
                                          absl::Duration limit) {
  std::vector<RankProcess> processes;
  for (uint32_t rank = 0; rank < size; ++rank) processes.push_back(Fork(rank, body));
  const absl::Time deadline = absl::Now() + limit;
  for (;;) {
    std::vector<pollfd> pollers;
    bool all_stopped = true;
    for (RankProcess& process : processes) {
      pollfd poller = {process.pidfd, POLLIN, 0};
      process.ended = process.ended || poll(&poller, 1, 0) > 0;
      if (process.ended) continue;
      pollers.push_back(poller);
      all_stopped = all_stopped && Stopped(process.pid);
    }
    if (pollers.empty()) break;
    if (all_stopped || absl::Now() > deadline) {
      for (const RankProcess& process : processes) {
        if (!process.ended) kill(process.pid, SIGKILL);
      }
    }
    // With a timeout, because a stopped rank makes no descriptor ready.
    poll(pollers.data(), pollers.size(), 20);
  }
  std::vector<std::string> results;
  for (const RankProcess& process : processes) results.push_back(Reap(process));
  return results;
}

std::vector<std::string> RunRankThreads(uint32_t size,
                                        const std::function<absl::Status(uint32_t)>& body) {
  std::vector<std::string> results(size);
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      const absl::Status status = body(rank);
      if (!status.ok()) results[rank] = status.ToString();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

}  // namespace muster::collectives
