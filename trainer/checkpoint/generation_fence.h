// Who may publish in a folder: the newest generation of the job that opened it last.
//
// A node that was cut off may still compute while its job has gone on elsewhere. The folder's file
// GENERATION holds
// "<job id> <generation>"; a new generation raises it before it reads anything, and an older one
// finds it raised before it renames anything into place. The file is locked during both, so that
// neither can slip between the other's look and its deed.
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
  // For generation `generation` of job `job_id` in an existing folder.
  GenerationFence(std::string directory, std::string job_id, uint64_t generation);

  // Raises the fence to this generation; another job's fence is replaced. ABORTED when a newer
  // generation of this job has raised it already; otherwise as errno says, naming the file.
  absl::Status Raise() const;
  // Runs `publish` while nobody can raise the fence. Without running it: ABORTED when a newer
  // generation of this job has raised the fence, FAILED_PRECONDITION when another job has.
  absl::Status Publish(const std::function<absl::Status()>& publish) const;

 private:
  absl::Status StaleError(const std::string& holder) const;

  std::string directory_;
  std::string job_id_;
  uint64_t generation_;
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_CHECKPOINT_GENERATION_FENCE_H_
