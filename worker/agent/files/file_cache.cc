#include "worker/agent/files/file_cache.h"

#include <fcntl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "absl/cleanup/cleanup.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/files/owned_fd.h"
#include "common/sha256.h"
#include "common/status.h"
#include "worker/agent/storage/data_directory.h"
#include "worker/agent/user_files.h"

namespace muster::agent {
namespace {

namespace fs = std::filesystem;

constexpr char kIncomplete[] = "incomplete";
constexpr size_t kReadBytes = 64 << 10;
constexpr size_t kCopyBytes = 16 << 20;

// The digest of a file, after its content is on disk.
absl::StatusOr<std::string> SyncedDigest(const std::string& path) {
  const OwnedFd file(open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (file.get() < 0) return ErrnoStatus(errno, absl::StrCat("open ", path));
  if (fsync(file.get()) != 0) return ErrnoStatus(errno, absl::StrCat("sync ", path));
  Sha256 sha256;
  std::string buffer(kReadBytes, '\0');
  while (true) {
    const ssize_t size = read(file.get(), buffer.data(), buffer.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return ErrnoStatus(errno, absl::StrCat("read ", path));
    if (size == 0) return sha256.HexDigest();
    sha256.Update(buffer.data(), static_cast<size_t>(size));
  }
}

// Creates the folders of `path`, a relative path, below `root`. Replaces whatever else has their
// names, such as links that lead out of the directory.
absl::Status MakeFolders(const std::string& root, const std::string& path) {
  RETURN_IF_ERROR(MakeDirectories(root));
  std::string folder = root;
  const std::vector<std::string> parts = absl::StrSplit(path, '/');
  for (size_t i = 0; i + 1 < parts.size(); ++i) {
    absl::StrAppend(&folder, "/", parts[i]);
    struct stat info;
    const bool exists = lstat(folder.c_str(), &info) == 0;
    if (exists && S_ISDIR(info.st_mode)) continue;
    if (exists && unlink(folder.c_str()) != 0) {
      return ErrnoStatus(errno, absl::StrCat("remove ", folder));
    }
    if (mkdir(folder.c_str(), 0700) != 0) {
      return ErrnoStatus(errno, absl::StrCat("create ", folder));
    }
  }
  return absl::OkStatus();
}

// Copies all that `source` contains from its beginning. Returns 0 or errno.
int CopyContents(int source, int target) {
  if (lseek(source, 0, SEEK_SET) != 0) return errno;
  while (true) {
    const ssize_t copied = sendfile(target, source, nullptr, kCopyBytes);
    if (copied < 0 && errno == EINTR) continue;
    if (copied < 0) return errno;
    if (copied == 0) return 0;
  }
}

absl::Status Copy(int cached, const std::string& root, const v1::FileSpec& file) {
  RETURN_IF_ERROR(MakeFolders(root, file.path()));
  const std::string path = absl::StrCat(root, "/", file.path());
  const std::string what = absl::StrCat("copy to ", path);
  std::error_code error;
  fs::remove(path, error);
  if (error) return ErrnoStatus(error.value(), what);
  const int target = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (target < 0) return ErrnoStatus(errno, what);
  int failure = CopyContents(cached, target);
  if (failure == 0 && fchmod(target, file.executable() ? 0700 : 0600) != 0) failure = errno;
  if (close(target) != 0 && failure == 0) failure = errno;
  return failure == 0 ? absl::OkStatus() : ErrnoStatus(failure, what);
}

// Copies a cached file, which only the worker may read, into directories of the user.
absl::Status CopyToAll(const std::string& cached, const std::vector<std::string>& directories,
                       const v1::FileSpec& file, const std::optional<JobUser>& user) {
  const OwnedFd source(open(cached.c_str(), O_RDONLY | O_CLOEXEC));
  if (source.get() < 0) return ErrnoStatus(errno, absl::StrCat("open ", cached));
  const UserRights rights(user);
  RETURN_IF_ERROR(rights.status());
  for (const std::string& directory : directories) {
    RETURN_IF_ERROR(Copy(source.get(), directory, file));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<FileCache>> FileCache::Open(std::string directory,
                                                           uint64_t max_bytes, Fetch fetch) {
  RETURN_IF_ERROR(MakeDirectories(directory));
  std::error_code error;
  fs::remove(absl::StrCat(directory, "/", kIncomplete), error);
  return std::unique_ptr<FileCache>(
      new FileCache(std::move(directory), max_bytes, std::move(fetch)));
}

std::string FileCache::PathOf(const std::string& digest) const {
  return absl::StrCat(directory_, "/", digest);
}

absl::Status FileCache::Place(const Files& files, const std::vector<std::string>& directories,
                              const std::optional<JobUser>& user) {
  for (const v1::FileSpec& file : files) {
    const absl::Status placed = [&]() -> absl::Status {
      RETURN_IF_ERROR(Ensure(file));
      return CopyToAll(PathOf(file.sha256()), directories, file, user);
    }();
    if (!placed.ok()) return Annotate(placed, absl::StrCat("files: ", file.path()));
  }
  Trim(files);
  return absl::OkStatus();
}

absl::Status FileCache::Ensure(const v1::FileSpec& file) {
  const std::string path = PathOf(file.sha256());
  struct stat info;
  // A file is complete when it has its name. The size detects damage by a full disk or a user.
  if (stat(path.c_str(), &info) == 0 && static_cast<uint64_t>(info.st_size) == file.size_bytes()) {
    utimensat(AT_FDCWD, path.c_str(), nullptr, 0);  // the time of its last use
    return absl::OkStatus();
  }
  const std::string incomplete = absl::StrCat(directory_, "/", kIncomplete);
  const auto remover = absl::MakeCleanup([&incomplete] { unlink(incomplete.c_str()); });
  RETURN_IF_ERROR(fetch_(file, incomplete));
  ASSIGN_OR_RETURN(const std::string digest, SyncedDigest(incomplete));
  if (digest != file.sha256()) {
    return absl::DataLossError(
        absl::StrCat("received content with SHA-256 ", digest, ", not ", file.sha256()));
  }
  if (rename(incomplete.c_str(), path.c_str()) != 0) {
    return ErrnoStatus(errno, absl::StrCat("rename to ", path));
  }
  return absl::OkStatus();
}

void FileCache::Trim(const Files& used) {
  struct Cached {
    fs::file_time_type last_use;
    uint64_t bytes;
    fs::path path;
  };
  absl::flat_hash_set<std::string> in_use;
  for (const v1::FileSpec& file : used) in_use.insert(file.sha256());
  std::vector<Cached> unused;
  uint64_t bytes = 0;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory_, error)) {
    const uint64_t size = entry.file_size(error);
    if (error) continue;
    bytes += size;
    if (in_use.contains(entry.path().filename().string())) continue;
    unused.push_back({entry.last_write_time(error), size, entry.path()});
  }
  std::sort(unused.begin(), unused.end(),
            [](const Cached& a, const Cached& b) { return a.last_use < b.last_use; });
  for (const Cached& file : unused) {
    if (bytes <= max_bytes_) return;
    if (fs::remove(file.path, error)) bytes -= file.bytes;
  }
}

}  // namespace muster::agent
