// Restricts publishing in a directory to the newest generation of the job that opened it last.
//
// A partitioned node may still compute while its job has resumed elsewhere. The directory's file
// GENERATION contains "<job id> <generation>". A new generation raises it before it reads any
// checkpoint, and an older generation checks it before it renames a checkpoint into place. The file
// is locked during both operations, so that they cannot interleave.
#ifndef MUSTER_TRAINER_CHECKPOINT_GENERATION_FENCE_H_
#define MUSTER_TRAINER_CHECKPOINT_GENERATION_FENCE_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"

namespace muster::train {

// Movable, not thread-safe.
class GenerationFence {
 public:
  // `directory` must exist.
  GenerationFence(std::string directory, std::string job_id, uint64_t generation);

  // Raises the fence to this generation; replaces the fence of another job. ABORTED if a newer
  // generation of this job has raised it; otherwise the error of errno with the file.
  absl::Status Raise() const;
  // Runs `publish` while the fence is locked and returns its status. Does not run it if a newer
  // generation of this job (ABORTED) or another job (FAILED_PRECONDITION) has raised the fence.
  absl::Status Publish(const std::function<absl::Status()>& publish) const;

 private:
  absl::Status StaleError(const std::string& holder) const;

  std::string directory_;
  std::string job_id_;
  uint64_t generation_;
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_CHECKPOINT_GENERATION_FENCE_H_
