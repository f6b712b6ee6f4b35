// Checkpoints in the memory of a node, which ranks write when a peer is lost.
//
// The ranks that survive the loss leave the state of their last completed step to the next
// generation of the job, which otherwise would do all steps since the last checkpoint on disk
// again. Nothing is written as long as no rank is lost.
//
//   DIR/step-00001234.g2            state after step 1234, written by generation 2
//   DIR/.unfinished-step-00001234.g2
//
// DIR is on a file system in memory, and belongs to one job on one node. All ranks on a node that
// completed the same step have the same state: the first one writes it. A file consists of the
// length of the header (8 bytes), the header (JSON), and the arrays without gaps. Length and arrays
// are as in the memory of this node, which is the only one that reads the file.
#ifndef MUSTER_TRAINER_CHECKPOINT_MEMORY_CHECKPOINT_H_
#define MUSTER_TRAINER_CHECKPOINT_MEMORY_CHECKPOINT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "trainer/precision/loss_scale.h"

namespace muster::train {

// float32 array [elements] in host memory that is part of the training state.
struct StateArray {
  std::string name;
  float* values = nullptr;
  size_t elements = 0;
};

struct MemoryCheckpoint {
  uint64_t step = 0;
  uint64_t generation = 0;  // that wrote it
  std::string layout;       // digest of the layout of the arrays
  std::optional<LossScaleState> loss_scale = {};
};

// A directory of one job. Thread-safe.
class MemoryCheckpoints {
 public:
  // The directory is created when a checkpoint is written.
  explicit MemoryCheckpoints(std::string directory) : directory_(std::move(directory)) {}

  // Returns false if another rank has written, or is writing, this step. Errors of errno, as when
  // there is not enough memory; nothing is left then.
  absl::StatusOr<bool> Write(const MemoryCheckpoint& checkpoint,
                             absl::Span<const StateArray> arrays) const;
  // The newest checkpoint with this layout that an earlier generation wrote, by (generation, step).
  std::optional<MemoryCheckpoint> FindNewest(uint64_t before_generation,
                                             const std::string& layout) const;
  // Reads all arrays. DATA_LOSS if the file does not have exactly these arrays; errors of errno.
  absl::Status Read(const MemoryCheckpoint& checkpoint, absl::Span<const StateArray> arrays) const;
  // Removes what earlier generations wrote. Files that another rank removes meanwhile are no error.
  void RemoveBefore(uint64_t generation) const;

 private:
  std::string Path(const MemoryCheckpoint& checkpoint) const;

  std::string directory_;
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_CHECKPOINT_MEMORY_CHECKPOINT_H_
