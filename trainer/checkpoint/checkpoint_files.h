// Reads and writes the files of one checkpoint and their manifest.
#ifndef MUSTER_TRAINER_CHECKPOINT_CHECKPOINT_FILES_H_
#define MUSTER_TRAINER_CHECKPOINT_CHECKPOINT_FILES_H_

#include <cstdint>
#include <functional>
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

// Values of spec fields by path; see training_identity.h.
using TrainingFields = std::map<std::string, std::string>;

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
  TrainingFields training;  // the spec fields that the state depends on
  // Digest of these fields in checkpoints of earlier releases, which have no `training`; not
  // written any more.
  std::string training_digest;
  std::optional<LossScaleState> loss_scale;  // only with loss scaling
  // Result of the evaluation at this step, if there was one.
  std::optional<double> test_accuracy = {};
  std::optional<double> test_loss = {};
  // Training time of the job until this step, as in its step_end_seconds.
  double training_seconds = 0;
  // Losses, step times and evaluations of the job until this step: a serialized TrainSummary,
  // stored in a file of its own; see ReadSummary. Empty in checkpoints of earlier releases.
  std::string summary = {};
};

inline constexpr char kModelFile[] = "model.safetensors";
inline constexpr char kOptimizerFile[] = "optimizer.safetensors";
inline constexpr char kAverageFile[] = "ema.safetensors";
inline constexpr char kStateFile[] = "state.json";
inline constexpr char kSummaryFile[] = "summary.pb";
inline constexpr char kManifestFile[] = "manifest.json";
// Suffix of the index of several files that replace a single one: see tensor_set.h.
inline constexpr char kIndexSuffix[] = ".index.json";

struct ManifestEntry {
  uint64_t size_bytes = 0;
  std::string sha256;
};
using Manifest = std::map<std::string, ManifestEntry>;  // by file name

// Receives the number of bytes read or written since the previous call, regularly.
using ByteProgress = std::function<void(uint64_t bytes)>;

// File of each tensor, where several files replace a single one.
struct TensorIndex {
  uint64_t total_bytes = 0;                    // size of all tensors
  std::map<std::string, std::string> file_of;  // by tensor
};

// Each function writes one file into `directory`, syncs it to disk, and adds it to the manifest.
// Returns the error of errno with the path.
absl::Status WriteTensors(const std::string& directory, const std::string& name,
                          absl::Span<const Tensor> tensors, const ByteProgress& progress,
                          Manifest& manifest);
// Writes the index of the files that replace `name`.
absl::Status WriteIndex(const std::string& directory, const std::string& name,
                        const TensorIndex& index, Manifest& manifest);
// Writes state.json and, unless state.summary is empty, summary.pb.
absl::Status WriteState(const std::string& directory, const CheckpointState& state,
                        Manifest& manifest);
absl::Status WriteManifest(const std::string& directory, const Manifest& manifest);

// Checks that the manifest lists all required files (or their indexes) and that every listed file
// exists with the listed size and digest. DATA_LOSS explains what is wrong; NOT_FOUND if there is
// no manifest.
absl::Status VerifyManifest(const std::string& directory, const ByteProgress& progress);
// Reads state.json, which it checks against the manifest; not the summary. DATA_LOSS; NOT_FOUND if
// there is no manifest.
absl::StatusOr<CheckpointState> ReadState(const std::string& directory);
// The same for CheckpointState::summary.
absl::StatusOr<std::string> ReadSummary(const std::string& directory);

}  // namespace muster::train

#endif  // MUSTER_TRAINER_CHECKPOINT_CHECKPOINT_FILES_H_
