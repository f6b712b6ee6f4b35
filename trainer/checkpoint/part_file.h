// Report of a rank that has written its part of a checkpoint: see sharded_checkpoint.h.
#ifndef MUSTER_TRAINER_CHECKPOINT_PART_FILE_H_
#define MUSTER_TRAINER_CHECKPOINT_PART_FILE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer/checkpoint/checkpoint_files.h"

namespace muster::train {

// One safetensors file of a part.
struct Shard {
  std::string name;  // in the checkpoint's folder
  ManifestEntry entry;
  std::vector<std::string> tensors;  // names
  uint64_t tensor_bytes = 0;
};

struct PartFile {
  std::string attempt;                  // ShardedAttempt::id
  absl::Status error;                   // why the part could not be written; keeps its exit code
  std::map<std::string, Shard> shards;  // by the name of the single file, e.g. model.safetensors
};

// JSON.
std::string FormatPartFile(const PartFile& part);
// Errors of errno; DATA_LOSS with the path.
absl::StatusOr<PartFile> ReadPartFile(const std::string& path);

}  // namespace muster::train

#endif  // MUSTER_TRAINER_CHECKPOINT_PART_FILE_H_
