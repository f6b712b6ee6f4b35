#include "worker/agent/storage/memory_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/sha256.h"
#include "common/status.h"
#include "worker/agent/storage/data_directory.h"

namespace muster::agent {
namespace {

namespace fs = std::filesystem;

constexpr absl::string_view kPrefix = "muster-";
constexpr size_t kDigits = 16;

bool ChangedAfter(const fs::path& directory, absl::Time time) {
  struct stat status = {};
  return stat(directory.c_str(), &status) == 0 && absl::TimeFromTimespec(status.st_mtim) > time;
}

// Opens the directory and locks it by flock(`operation`). Errors of errno.
absl::StatusOr<OwnedFd> Lock(const std::string& path, int operation) {
  OwnedFd file(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (file.get() < 0) return ErrnoStatus(errno, absl::StrCat("open ", path));
  if (flock(file.get(), operation) == 0) return file;
  return ErrnoStatus(errno, absl::StrCat("flock ", path));
}

// Everyone may create directories below the parent, so one with the expected name may be another
// user's, who can replace its contents.
bool IsOwn(const OwnedFd& file) {
  struct stat status = {};
  return fstat(file.get(), &status) == 0 && status.st_uid == geteuid();
}

// Whether the open directory still has this path.
bool HasPath(const OwnedFd& file, const std::string& path) {
  struct stat own = {}, other = {};
  return fstat(file.get(), &own) == 0 && stat(path.c_str(), &other) == 0 &&
         own.st_ino == other.st_ino && own.st_dev == other.st_dev;
}

void SweepJobs(const std::string& directory, const std::set<std::pair<std::string, uint64_t>>& live,
               absl::Time before) {
  std::error_code error;
  for (const fs::directory_entry& job : fs::directory_iterator(directory, error)) {
    const std::string id = job.path().filename().string();
    const auto next = live.lower_bound({id, 0});
    const bool is_live = next != live.end() && next->first == id;
    std::error_code ignored;
    if (!is_live && !ChangedAfter(job.path(), before)) fs::remove_all(job.path(), ignored);
  }
}

}  // namespace

std::string MemoryDirectoryPath(absl::string_view parent, absl::string_view data_directory) {
  std::error_code error;
  const fs::path path = fs::weakly_canonical(std::string(data_directory), error);
  Sha256 hasher;
  hasher.Update(path.string());
  return absl::StrCat(parent, "/", kPrefix, hasher.HexDigest().substr(0, kDigits));
}

std::string MemoryDirectoryOf(absl::string_view directory, absl::string_view job_id) {
  return directory.empty() ? "" : absl::StrCat(directory, "/", job_id);
}

absl::StatusOr<std::unique_ptr<MemoryDirectory>> MemoryDirectory::Open(
    absl::string_view parent, absl::string_view data_directory, bool has_job_users) {
  const std::string path = MemoryDirectoryPath(parent, data_directory);
  while (true) {
    if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
      return ErrnoStatus(errno, absl::StrCat("create ", path));
    }
    // Another worker may take it for abandoned and delete it.
    absl::StatusOr<OwnedFd> lock = Lock(path, LOCK_SH);
    if (absl::IsNotFound(lock.status())) continue;
    RETURN_IF_ERROR(lock.status());
    if (!IsOwn(*lock)) {
      return absl::PermissionDeniedError(absl::StrCat(path, " belongs to another user"));
    }
    if (HasPath(*lock, path)) {
      fchmod(lock->get(), has_job_users ? 0711 : 0700);
      return std::unique_ptr<MemoryDirectory>(new MemoryDirectory(path, *std::move(lock)));
    }
  }
}

MemoryDirectory::~MemoryDirectory() {
  rmdir(path_.c_str());  // fails unless it is empty
}

void MemoryDirectory::Discard(absl::string_view job_id) const {
  std::error_code ignored;
  if (CheckJobId(job_id).ok()) fs::remove_all(MemoryDirectoryOf(path_, job_id), ignored);
}

void MemoryDirectory::Sweep(const std::set<std::pair<std::string, uint64_t>>& live,
                            absl::Time before) const {
  SweepJobs(path_, live, before);
}

void MemoryDirectory::SweepAbandoned(absl::Time before) const {
  std::error_code error;
  for (const fs::directory_entry& entry :
       fs::directory_iterator(fs::path(path_).parent_path(), error)) {
    const std::string path = entry.path().string();
    const std::string name = entry.path().filename().string();
    if (path == path_ || name.size() != kPrefix.size() + kDigits ||
        !absl::StartsWith(name, kPrefix)) {
      continue;
    }
    const absl::StatusOr<OwnedFd> lock = Lock(path, LOCK_EX | LOCK_NB);
    if (!lock.ok()) continue;  // its worker runs, or it belongs to another user
    if (IsOwn(*lock)) {
      SweepJobs(path, {}, before);
      rmdir(path.c_str());  // fails unless it is empty
    }
  }
}

}  // namespace muster::agent
