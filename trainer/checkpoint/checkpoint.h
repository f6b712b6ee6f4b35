// A folder of checkpoints, each complete or absent.
//
//   DIR/GENERATION            see generation_fence.h
//   DIR/step-00001234/        the training after 1234 steps
//     model.safetensors       parameters and buffers by torch's names: a state_dict
//     optimizer.safetensors   what the optimizer remembers of each parameter: fc.weight.momentum
//     ema.safetensors         the moving average, a state_dict too; only where there is one
//     state.json              where the training was: CheckpointState
//     manifest.json           size and SHA-256 of each of the others
//
// A checkpoint is written under a name that no reader looks for, synced, and renamed once.
#ifndef MUSTER_TRAINER_CHECKPOINT_CHECKPOINT_H_
#define MUSTER_TRAINER_CHECKPOINT_CHECKPOINT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "trainer/checkpoint/checkpoint_files.h"
#include "trainer/checkpoint/generation_fence.h"
#include "trainer/checkpoint/safetensors.h"

namespace muster::train {

struct Checkpoint {
  CheckpointState state;
  std::vector<Tensor> model;
  std::vector<Tensor> optimizer;
  std::vector<Tensor> average;  // empty: none
};

struct CheckpointOptions {
  std::string path;
  std::string job_id;
  uint64_t generation = 0;
  uint32_t keep = 3;  // newest checkpoints that are kept; at least 1
};

// Movable, not thread-safe.
class CheckpointDirectory {
 public:
  // Makes the folder where there is none, raises its fence and clears what a writer that was killed
  // left behind. Errors: ABORTED when a newer generation was here; otherwise as errno says, naming
  // the path.
  static absl::StatusOr<CheckpointDirectory> OpenForWriting(const CheckpointOptions& options);
  // For a rank that only looks for where to resume. A folder that does not exist has no
  // checkpoints. Raises the fence where it may write.
  static absl::StatusOr<CheckpointDirectory> OpenForReading(const CheckpointOptions& options);

  // The newest checkpoint whose files are what its manifest says; damaged ones are named in the log
  // and passed over. Nothing when there is none.
  std::optional<CheckpointState> FindNewestValid() const;
  // Checked against the manifest. NOT_FOUND, DATA_LOSS.
  absl::StatusOr<CheckpointState> Verify(uint64_t step) const;
  // Of a verified checkpoint.
  std::string ModelPath(uint64_t step) const;
  std::string OptimizerPath(uint64_t step) const;
  // Nothing where the checkpoint has no average.
  std::optional<std::string> AveragePath(uint64_t step) const;

  // Publishes a checkpoint and removes those beyond options.keep. ABORTED or FAILED_PRECONDITION
  // when the folder belongs to somebody else now (nothing is published); otherwise as errno says,
  // naming the path.
  absl::Status Write(const Checkpoint& checkpoint) const;

 private:
  explicit CheckpointDirectory(const CheckpointOptions& options);
  std::string StepPath(uint64_t step) const;
  // Newest first.
  std::vector<uint64_t> Steps() const;
  absl::Status WriteFiles(const std::string& directory, const Checkpoint& checkpoint) const;
  absl::Status MoveIntoPlace(const std::string& from, uint64_t step) const;
  void RemoveOld(uint64_t newest_step) const;
  void RemoveLeftovers() const;

  CheckpointOptions options_;
  GenerationFence fence_;
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_CHECKPOINT_CHECKPOINT_H_
