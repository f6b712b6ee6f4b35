#include "trainer/data/cache_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/files/owned_fd.h"
#include "common/sha256.h"
#include "common/status.h"
#include "common/time/deadline.h"
#include "glog/logging.h"

namespace muster::data {
namespace {

// Neither the release of another process's lock nor its progress can be waited for.
constexpr absl::Duration kPollInterval = absl::Milliseconds(50);

// Waits for the lock of a cache file, whose holder writes its progress to the lock file.
absl::Status Lock(int lock, const std::string& path, absl::string_view unit, const Cache& cache) {
  std::optional<uint64_t> last;
  Deadline deadline(cache.lock_timeout);
  while (flock(lock, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) return ErrnoStatus(errno, absl::StrCat("lock ", path));
    uint64_t done = 0;
    const bool known = pread(lock, &done, sizeof(done), 0) == sizeof(done);
    if (known && done != last) {
      last = done;
      deadline = Deadline(cache.lock_timeout);
    } else if (deadline.passed()) {
      return absl::DeadlineExceededError(
          absl::StrCat(path, ": the process that holds this lock has made no progress for ",
                       absl::FormatDuration(cache.lock_timeout), " (", last.value_or(0), " ", unit,
                       "); stop it: its id is in the output of lslocks"));
    }
    if (known) cache.Report(done, unit);
    absl::SleepFor(kPollInterval);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> CachedName(absl::string_view kind,
                                       absl::Span<const std::string> sources,
                                       const std::string& cache_dir) {
  std::string key;
  for (const std::string& source : sources) {
    const std::unique_ptr<char, void (*)(void*)> resolved(realpath(source.c_str(), nullptr), &free);
    struct stat info;
    if (resolved == nullptr || stat(resolved.get(), &info) != 0) {
      return ErrnoStatus(errno, absl::StrCat("open ", source));
    }
    absl::StrAppend(&key, resolved.get(), "\n", info.st_size, "\n", info.st_mtim.tv_sec, ".",
                    info.st_mtim.tv_nsec, "\n");
  }
  return absl::StrCat(cache_dir, "/", kind, "-", Sha256Hex(key).substr(0, 32));
}

absl::Status MakeCacheFile(const std::string& target, absl::string_view unit, const Cache& cache,
                           const std::function<bool()>& is_complete,
                           const std::function<absl::Status(const NewCacheFile& file)>& write) {
  std::error_code ignored;  // opening the lock reports the error
  std::filesystem::create_directories(std::filesystem::path(target).parent_path(), ignored);
  const std::string lock_path = target + ".lock";
  const OwnedFd lock(open(lock_path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0644));
  if (lock.get() < 0) return ErrnoStatus(errno, absl::StrCat("create ", lock_path));
  RETURN_IF_ERROR(Lock(lock.get(), lock_path, unit, cache));
  if (is_complete()) return absl::OkStatus();

  const auto report = [&](uint64_t done) {
    // Without it, the waiting processes make no progress, which is reported there.
    if (pwrite(lock.get(), &done, sizeof(done), 0) < 0) {
      LOG_FIRST_N(WARNING, 1) << ErrnoStatus(errno, absl::StrCat("write ", lock_path));
    }
    cache.Report(done, unit);
  };
  report(0);
  // One name for all processes: the lock is held, and a killed process's file is overwritten.
  const std::string temporary = target + ".part";
  ASSIGN_OR_RETURN(const auto contents, DurableFile::Create(temporary));
  absl::Status status = write({*contents, report});
  if (status.ok()) status = contents->AppendDigest();
  if (status.ok()) status = contents->Close();
  if (status.ok()) status = RenameDurably(temporary, target);
  if (!status.ok()) unlink(temporary.c_str());
  return status;
}

absl::StatusOr<MappedFile> MapCacheFile(const std::string& path) {
  ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  const auto* const bytes = reinterpret_cast<const char*>(file.bytes().data());
  const absl::string_view all(bytes, file.bytes().size());
  const size_t size = all.size() < kCacheDigestBytes ? 0 : all.size() - kCacheDigestBytes;
  if (Sha256Hex(all.substr(0, size)) != all.substr(size)) {
    return absl::DataLossError(absl::StrCat(path, " does not match its SHA-256"));
  }
  return file;
}

}  // namespace muster::data
