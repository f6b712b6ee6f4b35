// Reads and writes the files of one checkpoint and their manifest.
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

// Contents of state.json. The sampler's position is redundant (it follows from `step`) but is
// stored for people and other programs.
struct CheckpointState {
  uint64_t step = 0;
  double epoch = 0;
  uint64_t epoch_samples = 0;  // samples of the current epoch already used
  uint64_t seed = 0;
  uint64_t global_batch = 0;
  uint32_t world_size = 0;
  std::string job_id;
  uint64_t generation = 0;
  // Digest of all spec settings that the state depends on; differs between different trainings.
  std::string training_digest;
  std::optional<LossScaleState> loss_scale;  // only with loss scaling
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

// Each function writes one file into `directory`, syncs it to disk, and adds it to the manifest.
// Returns the error of errno with the path.
absl::Status WriteTensors(const std::string& directory, const std::string& name,
                          absl::Span<const Tensor> tensors, Manifest& manifest);
absl::Status WriteState(const std::string& directory, const CheckpointState& state,
                        Manifest& manifest);
absl::Status WriteManifest(const std::string& directory, const Manifest& manifest);

// Checks that the manifest lists all required files and that every listed file exists with the
// listed size and digest. DATA_LOSS explains what is wrong; NOT_FOUND if there is no manifest.
absl::Status VerifyManifest(const std::string& directory);
// DATA_LOSS, NOT_FOUND.
absl::StatusOr<CheckpointState> ReadState(const std::string& directory);

}  // namespace muster::train

#endif  // MUSTER_TRAINER_CHECKPOINT_CHECKPOINT_FILES_H_
