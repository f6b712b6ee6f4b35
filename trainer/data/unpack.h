// Unpacks compressed IDX files into the cache.
#ifndef MUSTER_TRAINER_DATA_UNPACK_H_
#define MUSTER_TRAINER_DATA_UNPACK_H_

#include <string>

#include "absl/status/status.h"

namespace muster::data {

// Unpacks the gzip file `source`, which holds an IDX file, to `target`, as MakeCacheFile does.
// DATA_LOSS names the source and how many bytes are missing or what is wrong; other codes as errno
// says.
absl::Status UnpackIdx(const std::string& source, const std::string& target);

}  // namespace muster::data

#endif  // MUSTER_TRAINER_DATA_UNPACK_H_
