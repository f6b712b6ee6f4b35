// The cache of unpacked data files that the ranks of a node share.
#ifndef MUSTER_WORKER_DATA_UNPACK_H_
#define MUSTER_WORKER_DATA_UNPACK_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace muster::data {

// Where the unpacked form of `source` (which must exist) belongs: another path, size or
// modification time is another name, so that a replaced file is never mistaken for its predecessor.
absl::StatusOr<std::string> CachedName(const std::string& source, const std::string& cache_dir);

// Unpacks the gzip file `source`, which holds an IDX file, to `target`: written beside and renamed,
// under a lock that makes other processes wait and then find it done. Replaces a damaged target.
// DATA_LOSS names the source and how many bytes are missing or what is wrong; other codes as errno
// says.
absl::Status UnpackIdx(const std::string& source, const std::string& target);

}  // namespace muster::data

#endif  // MUSTER_WORKER_DATA_UNPACK_H_
