// The cache of converted data files that the processes of a machine share.
#ifndef MUSTER_TRAINER_DATA_CACHE_FILE_H_
#define MUSTER_TRAINER_DATA_CACHE_FILE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "trainer/data/durable_file.h"
#include "trainer/data/mapped_file.h"

namespace muster::data {

// Receives the progress of long work: `done` so far in `unit`, e.g. 1200 "files indexed". Called
// regularly by the thread that works or that waits for another process's work.
using WorkProgress = std::function<void(uint64_t done, absl::string_view unit)>;

// The machine's cache directory, and how a process waits while it is filled.
struct Cache {
  Cache() = default;
  // Implicit, because most callers report no progress.
  Cache(std::string directory, WorkProgress receiver = {})
      : dir(std::move(directory)), progress(std::move(receiver)) {}
  Cache(const char* directory) : dir(directory) {}

  void Report(uint64_t done, absl::string_view unit) const {
    if (progress) progress(done, unit);
  }

  std::string dir;  // shared by all processes of the machine; empty: none
  WorkProgress progress;
  // Longest wait for another process's work without progress of that work.
  absl::Duration lock_timeout = absl::InfiniteDuration();
};

// Returns the path of the converted form of `sources` (which must exist): cache_dir/KIND-…. The
// name depends on the path, size and modification time of each source, so that a replaced file is
// converted again.
absl::StatusOr<std::string> CachedName(absl::string_view kind,
                                       absl::Span<const std::string> sources,
                                       const std::string& cache_dir);

// A temporary file next to the target.
struct NewCacheFile {
  DurableFile& contents;
  // To be called regularly with the work done so far.
  std::function<void(uint64_t done)> report;
};

// Creates `target` unless `is_complete` returns true: `write` fills a temporary file, which is
// synced to disk with its digest and then renamed. A lock makes concurrent processes wait and then
// use the result. All of them report the writer's progress in `unit` to `cache`, so that a waiting
// process makes progress exactly as long as the writer does. Replaces a damaged target. Errors:
// those of `write`; from errno; DEADLINE_EXCEEDED with the lock's path if another process holds it
// without progress for cache.lock_timeout.
absl::Status MakeCacheFile(const std::string& target, absl::string_view unit, const Cache& cache,
                           const std::function<bool()>& is_complete,
                           const std::function<absl::Status(const NewCacheFile& file)>& write);

// Maps a file that MakeCacheFile has written. Its last kCacheDigestBytes are not part of its
// contents. DATA_LOSS if it is damaged; also errors of errno.
inline constexpr size_t kCacheDigestBytes = 64;
absl::StatusOr<MappedFile> MapCacheFile(const std::string& path);

}  // namespace muster::data

#endif  // MUSTER_TRAINER_DATA_CACHE_FILE_H_
