// The files of one checkpoint and the manifest over them.
#ifndef MUSTER_TRAINER_CHECKPOINT_CHECKPOINT_FILES_H_
#define MUSTER_TRAINER_CHECKPOINT_CHECKPOINT_FILES_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/precision/loss_scale.h"

namespace muster::train {

// state.json. The sampler's position follows from step; it is there to be read by people and other
// programs.
struct CheckpointState {
  uint64_t step = 0;
  double epoch = 0;
  uint64_t epoch_samples = 0;  // of the current epoch that are used up
  uint64_t seed = 0;
  uint64_t global_batch = 0;
  uint32_t world_size = 0;
  std::string job_id;
  uint64_t generation = 0;
  // Of everything in the spec that the state depends on: another digest is another training.
  std::string training_digest;
  std::optional<LossScaleState> loss_scale;  // where the training has one
};

inline constexpr char kModelFile[] = "model.safetensors";
inline constexpr char kOptimizerFile[] = "optimizer.safetensors";
inline constexpr char kAverageFile[] = "ema.safetensors";
inline constexpr char kStateFile[] = "state.json";
inline constexpr char kManifestFile[] = "manifest.json";

struct ManifestEntry {
  uint64_t size_bytes = 0;
  std::string sha256;
};
using Manifest = std::map<std::string, ManifestEntry>;  // by file name

// Each writes one file into `directory`, waits until the disk has it, and adds it to the manifest.
// Errors: as errno says, naming the path.
absl::Status WriteTensors(const std::string& directory, const std::string& name,
                          absl::Span<const Tensor> tensors, Manifest& manifest);
absl::Status WriteState(const std::string& directory, const CheckpointState& state,
                        Manifest& manifest);
absl::Status WriteManifest(const std::string& directory, const Manifest& manifest);

// Whether the manifest's files, all that a checkpoint needs among them, are there, each of the size
// and digest that it says. DATA_LOSS names what is wrong; NOT_FOUND where there is no manifest.
absl::Status VerifyManifest(const std::string& directory);
// DATA_LOSS, NOT_FOUND.
absl::StatusOr<CheckpointState> ReadState(const std::string& directory);

}  // namespace muster::train

#endif  // MUSTER_TRAINER_CHECKPOINT_CHECKPOINT_FILES_H_
