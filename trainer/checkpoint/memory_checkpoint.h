// Checkpoints in the memory of a node, which ranks write when a peer is lost.
//
// The ranks that survive the loss leave the state of their last completed step to the next
// generation of the job, which otherwise would do all steps since the last checkpoint on disk
// again. Nothing is written as long as no rank is lost.
//
//   DIR/step-00001234.g2               state after step 1234, written by generation 2
//   DIR/step-00001234.g2-part1of4      the second of its four parts
//   DIR/.unfinished-step-00001234.g2
//
// DIR is on a file system in memory, and belongs to one job on one node. The state of a strategy
// whose ranks have different parameters or optimizer states consists of parts. All ranks on a node
// that have the same part of the same step have the same values: the first one writes it. A file
// consists of the length of the header (8 bytes), the header (JSON), and the summary and the arrays
// without gaps.
// Length and arrays are as in the memory of this node, which is the only one that reads the file.
#ifndef MUSTER_TRAINER_CHECKPOINT_MEMORY_CHECKPOINT_H_
#define MUSTER_TRAINER_CHECKPOINT_MEMORY_CHECKPOINT_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "trainer/precision/loss_scale.h"

namespace muster::train {

// Array in host memory that is part of the training state.
struct StateArray {
  std::string name;
  void* data = nullptr;
  size_t bytes = 0;
};

// A state in memory, or a part of one.
struct MemoryCheckpoint {
  uint64_t step = 0;
  uint64_t generation = 0;  // that wrote it
  uint32_t part = 0;        // of `parts`
  uint32_t parts = 1;
  std::string layout;  // digest of the layout of the arrays
  std::optional<LossScaleState> loss_scale = {};
  // As in CheckpointState.
  double training_seconds = 0;
  std::string summary = {};
};

// A part of the state to resume from.
struct MemoryPart {
  uint32_t rank = 0;  // that reads it
  // As found on that rank; other ranks know only step, generation and parts.
  MemoryCheckpoint checkpoint;
};

// A directory of one job. Thread-safe.
class MemoryCheckpoints {
 public:
  // The directory is created when a checkpoint is written.
  explicit MemoryCheckpoints(std::string directory) : directory_(std::move(directory)) {}

  // Returns false if another rank has written, or is writing, this part of the step. Errors of
  // errno, as when there is not enough memory; nothing is left then.
  absl::StatusOr<bool> Write(const MemoryCheckpoint& checkpoint,
                             absl::Span<const StateArray> arrays) const;
  // Returns the states that earlier generations wrote with this layout, the newest (generation,
  // step) first.
  std::vector<MemoryCheckpoint> Find(uint64_t before_generation, const std::string& layout) const;
  // Reads all arrays. DATA_LOSS if the file does not have exactly these arrays; errors of errno.
  absl::Status Read(const MemoryCheckpoint& checkpoint, absl::Span<const StateArray> arrays) const;
  // Reads the arrays that the file has, whatever their sizes. DATA_LOSS; errors of errno.
  using Contents = std::map<std::string, std::vector<uint8_t>>;
  absl::StatusOr<Contents> ReadContents(const MemoryCheckpoint& checkpoint) const;
  // Removes what earlier generations wrote. Files that another rank removes meanwhile are no error.
  void RemoveBefore(uint64_t generation) const;

 private:
  std::string Path(const MemoryCheckpoint& checkpoint) const;

  std::string directory_;
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_CHECKPOINT_MEMORY_CHECKPOINT_H_
