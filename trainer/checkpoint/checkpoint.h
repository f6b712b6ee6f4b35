// A directory of checkpoints that are published atomically.
//
//   DIR/step-00001234.g2/     checkpoint after 1234 steps, of generation 2; see retention.h
//     model.safetensors       parameters and buffers with PyTorch's names: a state_dict
//     optimizer.safetensors   optimizer states by parameter, e.g. fc.weight.momentum
//     ema.safetensors         moving average, also a state_dict; only if there is one
//     state.json              position of the training: CheckpointState
//     summary.pb              losses, step times and evaluations so far: a TrainSummary
//     manifest.json           size and SHA-256 of each of the other files
//
// If several ranks write a checkpoint, each of the first three is divided: see
// sharded_checkpoint.h.
//
// A checkpoint is written under a temporary name that readers ignore, synced, and then renamed.
#ifndef MUSTER_TRAINER_CHECKPOINT_CHECKPOINT_H_
#define MUSTER_TRAINER_CHECKPOINT_CHECKPOINT_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "trainer/checkpoint/checkpoint_files.h"
#include "trainer/checkpoint/directory_operations.h"
#include "trainer/checkpoint/retention.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/checkpoint/verifier.h"

namespace muster::train {

struct Checkpoint {
  CheckpointState state;
  std::vector<Tensor> model;
  std::vector<Tensor> optimizer;
  std::vector<Tensor> average;  // empty if there is none
};

// A published checkpoint in a known directory.
struct CheckpointRef {
  std::string name;  // name of its folder
  uint64_t step = 0;
  // The job's best checkpoint at that time by CheckpointOptions::keep_best; empty: none is known.
  std::string best_name = {};
  uint64_t best_step = 0;
};

struct FoundCheckpoint {
  std::string name;  // name of its folder
  CheckpointState state;
};

struct CheckpointOptions {
  std::string path;
  std::string job_id;
  uint64_t generation = 0;
  uint32_t keep = 3;           // number of newest checkpoints to keep; at least 1
  bool create_parents = true;  // create missing parents of the directory, too
  // Other jobs may use the directory, too: names of this job's checkpoints contain its ID, so that
  // none of them ever becomes the name of another job's checkpoint.
  bool shared = false;
  std::string keep_best = {};  // metric whose best checkpoint is kept, too; see BestFolder
  const DirectoryOperations* operations = &RealDirectoryOperations();
};

// Copyable; thread-safe, except that only one checkpoint may be written at a time. Methods return
// ABORTED if a newer generation of the job has a checkpoint in the directory; otherwise, where not
// stated, the error of errno with the path.
class CheckpointDirectory {
 public:
  // Creates the directory if it does not exist and deletes leftovers of killed writers.
  static absl::StatusOr<CheckpointDirectory> OpenForWriting(const CheckpointOptions& options);
  // For ranks that only look for a checkpoint to resume from. A directory that does not exist has
  // no checkpoints.
  static CheckpointDirectory OpenForReading(const CheckpointOptions& options);
  // Opens a directory of other jobs, in which nothing is changed and no generation is checked.
  static CheckpointDirectory OpenReadOnly(const std::string& path);

  const std::string& path() const { return options_.path; }

  // Decides whether the job may resume from a checkpoint before anything is changed.
  using Accept = std::function<absl::Status(const CheckpointState&)>;
  // Newest checkpoint whose files match its manifest, claimed for this generation if it is this
  // job's. Invalid checkpoints are logged and skipped. Empty if there is none. Also the errors of
  // `accept` for the newest checkpoint whose state can be read.
  absl::StatusOr<std::optional<FoundCheckpoint>> FindNewestValid(const Verifier& verifier = {},
                                                                 const Accept& accept = {}) const;
  // Verifies the checkpoint in the folder `name` against its manifest and returns its state. Also
  // NOT_FOUND, DATA_LOSS.
  absl::StatusOr<CheckpointState> Verify(const std::string& name,
                                         const Verifier& verifier = {}) const;
  // The best checkpoint of this job by options.keep_best; it has not been verified. Empty if there
  // is none. Calls `on_progress`, if not null, for each checkpoint of the directory.
  absl::StatusOr<std::optional<CheckpointRef>> FindBest(
      const std::function<void()>& on_progress = nullptr) const;
  std::string FolderPath(const std::string& name) const;
  // Paths in a verified checkpoint, for TensorSet::Open.
  std::string ModelPath(const std::string& name) const;
  std::string OptimizerPath(const std::string& name) const;
  // Empty if the checkpoint has no average.
  std::optional<std::string> AveragePath(const std::string& name) const;

  // Writes and publishes a checkpoint and removes those beyond options.keep. Reports the bytes
  // written. Also the error of CheckFinite, in which case nothing is written.
  absl::StatusOr<CheckpointRef> Write(const Checkpoint& checkpoint,
                                      const ByteProgress& progress = {}) const;

  // The same in parts, for checkpoints with other files.
  //
  // ABORTED if a newer generation of the job has a checkpoint. `on_progress` as for FindBest.
  absl::Status CheckGeneration(const std::function<void()>& on_progress = nullptr) const;
  // Path of the folder in which the checkpoint of a step is written.
  std::string UnfinishedPath(uint64_t step) const;
  // Creates the folder, empty, and returns its path. `on_progress` as for FindBest.
  absl::StatusOr<std::string> CreateUnfinished(
      uint64_t step, const std::function<void()>& on_progress = nullptr) const;
  // Publishes the folder, removes old checkpoints and finds the best one. Replaces a checkpoint of
  // the same name, which is damaged. Deletes the folder on an error.
  absl::StatusOr<CheckpointRef> Publish(uint64_t step) const;
  // Deletes the folder.
  void Discard(uint64_t step) const;
  // `status`, or ABORTED if a newer generation is the reason.
  absl::Status Explain(const absl::Status& status) const;

 private:
  struct Listing {
    std::vector<Folder> folders;                                    // newest first
    std::map<std::string, absl::StatusOr<CheckpointState>> states;  // by name
  };

  CheckpointDirectory(const CheckpointOptions& options, bool read_only);
  absl::StatusOr<Listing> List(const std::function<void()>& on_progress = nullptr) const;
  // ABORTED if the listing has a checkpoint of a newer generation.
  absl::Status CheckGeneration(const Listing& listing) const;
  // Name of the folder after it has been claimed; empty if it is gone.
  absl::StatusOr<std::optional<std::string>> Claim(const Folder& folder) const;
  absl::Status WriteFiles(const std::string& directory, const Checkpoint& checkpoint,
                          const ByteProgress& progress) const;
  // Renames the unfinished folder of a step and returns its new name.
  absl::StatusOr<std::string> MoveIntoPlace(uint64_t step) const;
  // Job IDs to try in names of this job's checkpoints.
  std::vector<std::string> JobsInNames() const;
  bool IsOwn(const std::string& name) const;
  absl::Status RemoveFolder(const std::string& name) const;
  void RemoveOld(const Listing& listing, uint64_t newest_step) const;
  absl::Status DeleteLeftovers() const;

  CheckpointOptions options_;
  Owner owner_;
  bool read_only_;
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_CHECKPOINT_CHECKPOINT_H_
