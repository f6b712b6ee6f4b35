#include "cli/local/local_checkpoints.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace muster::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kName[] = "muster-checkpoints";
// Another run holds the lock exclusively only while it removes the directory.
constexpr int kLockAttempts = 100;
constexpr absl::Duration kLockInterval = absl::Milliseconds(20);

// Whether the job writes checkpoints to the cluster's directory.
bool UsesDirectory(const v1::JobSpec& spec) {
  if (!spec.has_train()) return spec.checkpoint_dir().empty();
  return spec.train().checkpoint().dir().empty() && spec.train().checkpoint().keep() > 0;
}

bool IsOpenDirectory(int directory, const std::string& path) {
  struct stat opened = {}, named = {};
  return fstat(directory, &opened) == 0 && stat(path.c_str(), &named) == 0 &&
         opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

std::vector<fs::path> Entries(const fs::path& directory) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    entries.push_back(it->path());
  }
  return entries;
}

}  // namespace

LocalCheckpoints::LocalCheckpoints(const v1::JobSpec& defaulted, Console& console) {
  if (!UsesDirectory(defaulted)) return;
  std::error_code error;
  const std::string path = (fs::current_path(error) / kName).string();
  const int failure = error ? error.value() : Open(path);
  if (failure == 0) {
    path_ = path;
    return;
  }
  console.Note(absl::StrCat("cannot create ", path, ": ", std::strerror(failure),
                            "; checkpoints will be removed with the cluster"));
}

int LocalCheckpoints::Open(const std::string& path) {
  for (int attempt = 0; attempt < kLockAttempts; ++attempt) {
    if (attempt > 0) absl::SleepFor(kLockInterval);
    if (mkdir(path.c_str(), 0777) != 0 && errno != EEXIST) return errno;
    const int directory = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0) {
      if (errno == ENOENT) continue;  // another run has removed it
      return errno;
    }
    const int failure = flock(directory, LOCK_SH | LOCK_NB) == 0 ? 0 : errno;
    if (failure == 0 && IsOpenDirectory(directory, path)) {
      lock_ = directory;
      return 0;
    }
    close(directory);
    // Another run is removing the directory, or has removed it before it was locked.
    if (failure == 0 || failure == EWOULDBLOCK || failure == EINTR) continue;
    return 0;  // the file system has no locks; the directory will be left
  }
  return EWOULDBLOCK;
}

LocalCheckpoints::~LocalCheckpoints() {
  if (lock_ < 0) return;
  // Otherwise, the last run that uses the directory does this.
  if (flock(lock_, LOCK_EX | LOCK_NB) == 0) {
    // Only a job that has written no checkpoint leaves an empty folder.
    for (const fs::path& folder : Entries(path_)) rmdir(folder.c_str());
    rmdir(path_.c_str());
  }
  close(lock_);
}

}  // namespace muster::cli
