#include "worker/agent/storage/data_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "common/files/owned_fd.h"
#include "common/limits.h"
#include "common/status.h"
#include "worker/shim/fields.h"

namespace muster::agent {
namespace {

constexpr char kGenerationPrefix[] = "generation-";

std::string RankName(uint32_t rank) { return absl::StrFormat("rank-%04u", rank); }

absl::Status CheckSocketPath(const std::string& path) {
  constexpr size_t kMaxLength = sizeof(sockaddr_un::sun_path) - 1;
  if (path.size() <= kMaxLength) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the data directory's path is ", path.size() - kMaxLength,
                   " characters too long for the unix socket ", path));
}

}  // namespace

absl::StatusOr<std::unique_ptr<DataDirectory>> DataDirectory::Open(const std::string& path,
                                                                   bool has_job_users) {
  if (path.empty()) return absl::InvalidArgumentError("the data directory must not be empty");
  std::error_code error;
  std::filesystem::path absolute = std::filesystem::absolute(path, error).lexically_normal();
  if (error) return ErrnoStatus(error.value(), path);
  if (!absolute.has_filename()) absolute = absolute.parent_path();
  std::string name = absolute.string();

  const security::DirectoryMode mode =
      has_job_users ? security::DirectoryMode::kPassage : security::DirectoryMode::kPrivate;
  RETURN_IF_ERROR(
      security::MakePrivateDirectory(name, {.mode = mode, .contents = {"lock", "identity"}}));
  const std::string lock_path = absl::StrCat(name, "/lock");
  ASSIGN_OR_RETURN(security::OwnedFd lock, security::OpenOwnFile(lock_path, O_RDWR | O_CREAT));
  const int lock_fd = lock.get();
  std::unique_ptr<DataDirectory> directory(new DataDirectory(std::move(name), std::move(lock)));
  if (flock(lock_fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return ErrnoStatus(errno, absl::StrCat("flock ", lock_path));
    char pid[32] = {};
    const ssize_t size = std::max<ssize_t>(0, pread(lock_fd, pid, sizeof(pid), 0));
    return absl::FailedPreconditionError(absl::StrCat(
        "data directory ", directory->path(), " is in use by another worker (pid ",
        absl::StripAsciiWhitespace(absl::string_view(pid, static_cast<size_t>(size))), ")"));
  }
  const std::string pid = absl::StrCat(getpid(), "\n");
  if (ftruncate(lock_fd, 0) != 0 ||
      pwrite(lock_fd, pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
    return ErrnoStatus(errno, absl::StrCat("write ", lock_path));
  }
  RETURN_IF_ERROR(CheckSocketPath(directory->RankSocket()));
  // Access to the socket or to a rank's token grants the rank's identity. The users of jobs can
  // reach the socket, which requires a token.
  for (const char* part : {"run", "jobs", "cache"}) {
    RETURN_IF_ERROR(
        security::MakePrivateDirectory(absl::StrCat(directory->path(), "/", part), {.mode = mode}));
  }
  RETURN_IF_ERROR(security::MakePrivateDirectory(directory->Files()));
  return directory;
}

std::string DataDirectory::RankSocket() const { return absl::StrCat(path_, "/run/rank.sock"); }

std::string DataDirectory::Cluster() const { return absl::StrCat(path_, "/cluster.pb"); }

std::string DataDirectory::MachineId() const { return absl::StrCat(path_, "/machine-id"); }

std::string DataDirectory::Cache() const { return absl::StrCat(path_, "/cache"); }

std::string DataDirectory::Peers() const { return absl::StrCat(path_, "/peers"); }

std::string DataDirectory::Promises() const { return absl::StrCat(path_, "/promises"); }

std::string DataDirectory::Files() const { return absl::StrCat(path_, "/files"); }

std::string DataDirectory::Jobs() const { return absl::StrCat(path_, "/jobs"); }

std::string DataDirectory::Job(const std::string& job_id) const {
  return absl::StrCat(Jobs(), "/", job_id);
}

std::string DataDirectory::Generation(const std::string& job_id, uint64_t generation) const {
  return absl::StrCat(Job(job_id), "/", kGenerationPrefix, generation);
}

std::string DataDirectory::Rank(const std::string& job_id, uint64_t generation,
                                uint32_t rank) const {
  return absl::StrCat(Generation(job_id, generation), "/", RankName(rank));
}

std::string DataDirectory::ErrorFile(const std::string& job_id, uint64_t generation,
                                     uint32_t rank) const {
  return absl::StrCat(Rank(job_id, generation, rank), "/error.json");
}

std::string DataDirectory::ProgressFile(const std::string& job_id, uint64_t generation,
                                        uint32_t rank) const {
  return absl::StrCat(Rank(job_id, generation, rank), "/progress");
}

std::string DataDirectory::UserFiles(const std::string& job_id, uint64_t generation,
                                     uint32_t rank) const {
  return absl::StrCat(Rank(job_id, generation, rank), "/user");
}

std::string DataDirectory::LaunchFile(const std::string& job_id, uint64_t generation) const {
  return absl::StrCat(Generation(job_id, generation), "/launch.pb");
}

std::string DataDirectory::NewestLaunchFile(const std::string& job_id) const {
  return absl::StrCat(Job(job_id), "/launch.pb");
}

std::string DataDirectory::Logs(const std::string& job_id, uint64_t generation) const {
  return absl::StrCat(Job(job_id), "/logs/", kGenerationPrefix, generation);
}

std::string DataDirectory::Log(const std::string& job_id, uint64_t generation, uint32_t rank,
                               v1::LogStream stream) const {
  return absl::StrCat(Logs(job_id, generation), "/", RankName(rank),
                      stream == v1::STDOUT ? ".stdout" : ".stderr");
}

std::string DataDirectory::WorkDirectories(const std::string& job_id) const {
  return absl::StrCat(Job(job_id), "/work");
}

std::string DataDirectory::Work(const std::string& job_id, uint32_t rank) const {
  return absl::StrCat(WorkDirectories(job_id), "/", RankName(rank));
}

std::string DataDirectory::Checkpoint(const std::string& job_id) const {
  return absl::StrCat(Job(job_id), "/checkpoint");
}

std::vector<std::pair<std::string, uint64_t>> DataDirectory::Generations() const {
  std::vector<std::pair<std::string, uint64_t>> found;
  std::error_code error;
  for (const auto& job : std::filesystem::directory_iterator(path_ + "/jobs", error)) {
    const std::string job_id = job.path().filename().string();
    if (!CheckJobId(job_id).ok()) continue;
    for (const auto& entry : std::filesystem::directory_iterator(job.path(), error)) {
      const std::string name = entry.path().filename().string();
      uint64_t generation = 0;
      if (absl::StartsWith(name, kGenerationPrefix) &&
          absl::SimpleAtoi(absl::StripPrefix(name, kGenerationPrefix), &generation)) {
        found.emplace_back(job_id, generation);
      }
    }
  }
  return found;
}

absl::Status CheckJobId(absl::string_view job_id) {
  bool ok = !job_id.empty() && job_id.size() <= limits::kIdempotencyKeyLength && job_id[0] != '.';
  for (const char c : job_id) {
    ok = ok &&
         (absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.');
  }
  if (ok) return absl::OkStatus();
  return absl::InvalidArgumentError("a job id may contain only letters, digits, '-', '_' and '.'");
}

absl::Status MakeDirectories(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return absl::OkStatus();
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  if (!parent.empty() && parent != path) RETURN_IF_ERROR(MakeDirectories(parent.string()));
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return ErrnoStatus(errno, absl::StrCat("mkdir ", path));
  }
  return absl::OkStatus();
}

absl::Status WriteMessage(const std::string& path, const google::protobuf::MessageLite& message,
                          bool sync) {
  if (shim::WriteFileAtomically(path, message.SerializeAsString(), sync)) return absl::OkStatus();
  return ErrnoStatus(errno, absl::StrCat("write ", path));
}

absl::Status AppendMessage(const std::string& path, const google::protobuf::MessageLite& message) {
  const OwnedFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (file.get() < 0) return ErrnoStatus(errno, absl::StrCat("open ", path));
  const off_t size = lseek(file.get(), 0, SEEK_END);
  const std::string bytes = message.SerializeAsString();
  const ssize_t written = write(file.get(), bytes.data(), bytes.size());
  if (written == static_cast<ssize_t>(bytes.size())) return absl::OkStatus();
  const int error = written < 0 ? errno : ENOSPC;
  // Part of a message would make the file unreadable.
  if (size >= 0 && written > 0 && ftruncate(file.get(), size) != 0) unlink(path.c_str());
  return ErrnoStatus(error, absl::StrCat("append to ", path));
}

absl::Status ReadMessage(const std::string& path, google::protobuf::MessageLite& message) {
  const std::optional<std::string> bytes = shim::ReadFile(path);
  if (!bytes.has_value()) return ErrnoStatus(errno, absl::StrCat("read ", path));
  if (message.ParseFromString(*bytes)) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(path, " is damaged"));
}

}  // namespace muster::agent
