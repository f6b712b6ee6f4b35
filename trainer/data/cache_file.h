// The cache of converted data files that the processes of a machine share.
#ifndef MUSTER_TRAINER_DATA_CACHE_FILE_H_
#define MUSTER_TRAINER_DATA_CACHE_FILE_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace muster::data {

// Returns the path of the converted form of `sources` (which must exist): cache_dir/KIND-…. The
// name depends on the path, size and modification time of each source, so that a replaced file is
// converted again.
absl::StatusOr<std::string> CachedName(absl::string_view kind,
                                       absl::Span<const std::string> sources,
                                       const std::string& cache_dir);

// Creates `target` unless `is_complete` returns true: `write` fills a temporary file next to it
// (fd, and its path for messages), which is then renamed. A lock makes concurrent processes wait
// and then use the result. Replaces a damaged target. Errors: those of `write`, or from errno.
absl::Status MakeCacheFile(
    const std::string& target, const std::function<bool()>& is_complete,
    const std::function<absl::Status(int fd, const std::string& path)>& write);

absl::Status WriteAll(int fd, absl::Span<const uint8_t> bytes, const std::string& path);

}  // namespace muster::data

#endif  // MUSTER_TRAINER_DATA_CACHE_FILE_H_
