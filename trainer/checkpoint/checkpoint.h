// A directory of checkpoints that are published atomically.
//
//   DIR/GENERATION            see generation_fence.h
//   DIR/step-00001234/        checkpoint after 1234 steps
//     model.safetensors       parameters and buffers with PyTorch's names: a state_dict
//     optimizer.safetensors   optimizer states by parameter, e.g. fc.weight.momentum
//     ema.safetensors         moving average, also a state_dict; only if there is one
//     state.json              position of the training: CheckpointState
//     manifest.json           size and SHA-256 of each of the other files
//
// A checkpoint is written under a temporary name that readers ignore, synced, and then renamed.
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
  std::vector<Tensor> average;  // empty if there is none
};

struct CheckpointOptions {
  std::string path;
  std::string job_id;
  uint64_t generation = 0;
  uint32_t keep = 3;           // number of newest checkpoints to keep; at least 1
  bool create_parents = true;  // create missing parents of the directory, too
};

// Movable, not thread-safe.
class CheckpointDirectory {
 public:
  // Creates the directory if it does not exist, raises its fence and removes leftovers of killed
  // writers. ABORTED if a newer generation has raised the fence; otherwise the error of errno with
  // the path.
  static absl::StatusOr<CheckpointDirectory> OpenForWriting(const CheckpointOptions& options);
  // For ranks that only look for a checkpoint to resume from. A directory that does not exist has
  // no checkpoints. Raises the fence if the directory is writable.
  static absl::StatusOr<CheckpointDirectory> OpenForReading(const CheckpointOptions& options);
  // For another job's directory, which is only read: its fence stays as it is. A directory that
  // does not exist has no checkpoints.
  static CheckpointDirectory OpenUnfenced(const std::string& path);

  const std::string& path() const { return options_.path; }

  // Newest checkpoint whose files match its manifest; invalid checkpoints are logged and skipped.
  // Empty if there is none.
  std::optional<CheckpointState> FindNewestValid() const;
  // State of the newest checkpoint whose state can be read, without verifying its files.
  std::optional<CheckpointState> PeekNewest() const;
  // Verifies a checkpoint against its manifest and returns its state. NOT_FOUND, DATA_LOSS.
  absl::StatusOr<CheckpointState> Verify(uint64_t step) const;
  std::string StepPath(uint64_t step) const;
  // Paths in a verified checkpoint.
  std::string ModelPath(uint64_t step) const;
  std::string OptimizerPath(uint64_t step) const;
  // Empty if the checkpoint has no average.
  std::optional<std::string> AveragePath(uint64_t step) const;

  // Publishes a checkpoint and removes those beyond options.keep. ABORTED or FAILED_PRECONDITION if
  // the directory now belongs to another generation or job (nothing is published); otherwise the
  // error of errno with the path.
  absl::Status Write(const Checkpoint& checkpoint) const;

 private:
  explicit CheckpointDirectory(const CheckpointOptions& options);
  // Steps of all checkpoints, newest first.
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
