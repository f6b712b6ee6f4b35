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

// Where the converted form of `sources` (which must exist) belongs: cache_dir/KIND-…. Another path,
// size or modification time is another name, so that a replaced file is never mistaken for its
// predecessor.
absl::StatusOr<std::string> CachedName(absl::string_view kind,
                                       absl::Span<const std::string> sources,
                                       const std::string& cache_dir);

// Makes `target` unless `is_complete` says that it is there: `write` fills a file beside it (fd,
// and its path for messages), which is then renamed, under a lock that makes other processes wait
// and then find it done. Replaces a damaged target. Errors are `write`'s, or as errno says.
absl::Status MakeCacheFile(
    const std::string& target, const std::function<bool()>& is_complete,
    const std::function<absl::Status(int fd, const std::string& path)>& write);

absl::Status WriteAll(int fd, absl::Span<const uint8_t> bytes, const std::string& path);

}  // namespace muster::data

#endif  // MUSTER_TRAINER_DATA_CACHE_FILE_H_
