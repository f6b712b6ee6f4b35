// Unpacks compressed IDX files into the cache.
#ifndef MUSTER_TRAINER_DATA_UNPACK_H_
#define MUSTER_TRAINER_DATA_UNPACK_H_

#include <string>

#include "absl/status/status.h"
#include "trainer/data/cache_file.h"

namespace muster::data {

// Unpacks the gzip file `source`, which contains an IDX file, to `target` with MakeCacheFile.
// DATA_LOSS names the source with the number of missing bytes or the defect; also the errors of
// MakeCacheFile.
absl::Status UnpackIdx(const std::string& source, const std::string& target, const Cache& cache);

}  // namespace muster::data

#endif  // MUSTER_TRAINER_DATA_UNPACK_H_
