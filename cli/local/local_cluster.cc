#include "cli/local/local_cluster.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "cli/exit_code.h"
#include "cli/local/guardian.h"
#include "common/process/find_program.h"
#include "common/status.h"

namespace muster::cli {
namespace {

constexpr int kStartTimeoutMs = 30000;
// Sockets are created below it, and their paths have a length limit.
constexpr size_t kLongestDirectory = 48;

absl::StatusOr<std::string> MakeDirectory(const std::string& keep) {
  std::error_code error;
  if (!keep.empty()) {
    const std::string path = std::filesystem::absolute(keep, error).lexically_normal();
    if (std::filesystem::exists(path, error) && !std::filesystem::is_empty(path, error)) {
      return absl::PermissionDeniedError(absl::StrCat(path, " is not empty"));
    }
    std::filesystem::create_directories(path, error);
    if (!error && chmod(path.c_str(), 0700) == 0) return path;
    return absl::PermissionDeniedError(
        ErrnoStatus(error ? error.value() : errno, absl::StrCat("create ", path)).message());
  }
  const char* named = getenv("TMPDIR");
  std::string parent = named == nullptr || *named == '\0' ? "/tmp" : named;
  if (parent.size() > kLongestDirectory) parent = "/tmp";
  std::string path = absl::StrCat(parent, "/muster-local.XXXXXX");
  if (mkdtemp(path.data()) != nullptr) return path;
  return absl::PermissionDeniedError(
      ErrnoStatus(errno, absl::StrCat("create a directory in ", parent)).message());
}

}  // namespace

absl::StatusOr<std::unique_ptr<LocalCluster>> LocalCluster::Start(
    const LocalClusterOptions& options) {
  GuardianOptions guardian;
  guardian.nodes = options.nodes;
  guardian.slots = options.slots;
  guardian.checkpoint_directory = options.checkpoint_directory;
  guardian.keep_directory = !options.keep_directory.empty();
  ASSIGN_OR_RETURN(guardian.coordinator_binary,
                   FindProgram(options.coordinator_binary, "coordinator", "muster-coordinator",
                               "--coordinator-binary"));
  ASSIGN_OR_RETURN(guardian.worker_binary, FindProgram(options.worker_binary, "worker",
                                                       "muster-worker", "--worker-binary"));
  ASSIGN_OR_RETURN(guardian.directory, MakeDirectory(options.keep_directory));
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) {
    return ErrnoStatus(errno, "socketpair");
  }
  const pid_t pid = fork();
  if (pid == 0) {
    close(sockets[0]);
    RunGuardian(guardian, sockets[1]);
  }
  close(sockets[1]);
  if (pid < 0) return ErrnoStatus(errno, "fork");
  std::unique_ptr<LocalCluster> cluster(new LocalCluster(guardian.directory, sockets[0], pid));
  std::string line = cluster->ReadLine(kStartTimeoutMs);
  absl::string_view text = line;
  if (absl::ConsumePrefix(&text, kReadyWord)) {
    cluster->address_ = std::string(text);
    return cluster;
  }
  if (absl::ConsumePrefix(&text, kFailedWord)) return absl::InternalError(text);
  return absl::InternalError("the coordinator did not start");
}

LocalCluster::~LocalCluster() {
  shutdown(socket_, SHUT_RDWR);
  if (watcher_.joinable()) watcher_.join();
  while (waitpid(guardian_, nullptr, 0) < 0 && errno == EINTR) {
  }
  close(socket_);
}

void LocalCluster::Watch(std::function<void()> on_failure) {
  watcher_ = std::thread([this, on_failure = std::move(on_failure)] {
    const std::string line = ReadLine(-1);
    absl::string_view text = line;
    if (!absl::ConsumePrefix(&text, kFailedWord)) return;
    {
      absl::MutexLock lock(&mutex_);
      status_ = absl::InternalError(text);
    }
    on_failure();
  });
}

absl::Status LocalCluster::status() const {
  absl::MutexLock lock(&mutex_);
  return status_;
}

std::string LocalCluster::ReadLine(int timeout_ms) {
  std::string line;
  while (true) {
    pollfd fd = {socket_, POLLIN, 0};
    const int ready = poll(&fd, 1, timeout_ms);
    if (ready < 0 && errno == EINTR) continue;
    char c;
    if (ready <= 0 || read(socket_, &c, 1) != 1) return "";
    if (c == '\n') return line;
    line += c;
  }
}

void FitToJob(const v1::JobSpec& defaulted, LocalClusterOptions& options) {
  uint32_t devices = 1;  // also for "all": a rank then uses the devices that exist
  if (!absl::SimpleAtoi(defaulted.resources().devices_per_rank(), &devices)) devices = 1;
  options.nodes = std::max(options.nodes, defaulted.resources().nodes().max());
  options.slots = std::max(options.slots, defaulted.resources().ranks_per_node() * devices);
}

void NoteSharedCores(const LocalClusterOptions& options, Console& console) {
  const uint64_t slots = uint64_t{options.nodes} * options.slots;
  const unsigned cores = std::thread::hardware_concurrency();
  if (slots <= cores) return;
  console.Note(slots, " slots on ", cores, cores == 1 ? " core" : " cores",
               ": ranks share cores and run slower");
}

int ExitCodeOfStart(const absl::Status& status) {
  if (absl::IsPermissionDenied(status)) return kExitCannotCreate;
  return absl::IsNotFound(status) ? kExitNoInput : kExitFailure;
}

}  // namespace muster::cli
