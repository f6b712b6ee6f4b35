// Verifies the files of a checkpoint, once per machine and generation of a job.
#ifndef MUSTER_TRAINER_CHECKPOINT_VERIFIER_H_
#define MUSTER_TRAINER_CHECKPOINT_VERIFIER_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "trainer/data/cache_file.h"

namespace muster::train {

// The ranks of a generation on one machine share the result through the cache: the first one reads
// the files, the others wait for it. The next generation reads them again, because a file may be
// damaged without a change of its modification time. Movable, not thread-safe.
class Verifier {
 public:
  // Verifies for this process only, without reports.
  Verifier() = default;
  // For a rank of `generation` of the job. Without a usable cache directory, or if the process that
  // reads the files makes no progress for cache.lock_timeout, verifies for this process only.
  // Reports "MiB verified".
  Verifier(data::Cache cache, const std::string& job_id, uint64_t generation)
      : cache_(std::move(cache)), reader_(absl::StrCat(job_id, " ", generation)) {}

  // Checks the checkpoint in `directory` with VerifyManifest. NOT_FOUND, DATA_LOSS.
  absl::Status Verify(const std::string& directory) const;

 private:
  data::Cache cache_;
  std::string reader_;  // job and generation
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_CHECKPOINT_VERIFIER_H_
