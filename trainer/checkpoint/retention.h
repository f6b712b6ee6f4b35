// Names of the folders in a checkpoint directory, and the rules by which the generations of a job
// share it without locks. Pure functions; checkpoint.h applies them to a directory.
//
//   step-00001234.g2                   checkpoint of step 1234 that belongs to generation 2
//   step-00001234.g2-JOB               the same, in a directory that several jobs use
//   step-00001234                      checkpoint of an earlier release: generation 0
//   .unfinished-step-00001234.g2-JOB   being written by generation 2 of JOB
//   .removed-step-00001234.g1-JOB      being deleted
//
// - A reader takes the valid checkpoint with the highest (generation, step) of its job.
// - A generation claims the checkpoint that it resumes from: it renames it to its own generation. A
//   rename is atomic, so an older generation that still runs either removes the checkpoint before,
//   and the reader scans again, or can no longer remove it.
// - A generation removes folders of its own job and of its own and earlier generations only, and
//   renames each to `.removed-…` before it deletes any of its files.
// - A generation stops when it finds a checkpoint of a newer generation of its job.
#ifndef MUSTER_TRAINER_CHECKPOINT_RETENTION_H_
#define MUSTER_TRAINER_CHECKPOINT_RETENTION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace muster::train {

struct FolderName {
  uint64_t step = 0;
  uint64_t generation = 0;
  std::string job_id = {};  // empty: the name has none
};

// Empty if `name` is not the name of a published checkpoint.
std::optional<FolderName> ParseFolderName(absl::string_view name);
std::string FormatFolderName(const FolderName& name);
std::string UnfinishedFolderName(const FolderName& name);
std::string RemovedFolderName(const FolderName& name);

// A generation that uses the directory.
struct Owner {
  std::string job_id;
  uint64_t generation = 0;
};

// A published checkpoint.
struct Folder {
  std::string name;
  uint64_t step = 0;
  uint64_t generation = 0;
  std::optional<std::string> job_id;  // job in its state; absent: the state cannot be read
  // Result of the evaluation at this step, if there was one.
  std::optional<double> test_accuracy = {};
  std::optional<double> test_loss = {};
};

// Sorts checkpoints of `job_id` before those of other jobs, then by (generation, step), newest
// first. Generations of different jobs cannot be compared: other jobs are sorted by the step of
// their newest checkpoint. Folders whose state cannot be read come last.
void SortNewestFirst(std::vector<Folder>& folders, absl::string_view job_id);

// The highest generation of the owner's job, if it is newer than the owner's.
std::optional<uint64_t> NewerGeneration(absl::Span<const Folder> folders, const Owner& owner);

// Whether the owner must claim the checkpoint before it resumes from it.
bool MustClaim(const Folder& folder, const Owner& owner);

// The best checkpoint of the owner's job by `metric`: the highest "test_accuracy" or the lowest
// "test_loss", of equal ones the newest. Null if there is none or `metric` is empty.
const Folder* BestFolder(absl::Span<const Folder> folders, const Owner& owner,
                         absl::string_view metric);

struct RetentionRules {
  uint32_t keep = 3;      // number of newest checkpoints; at least 1
  std::string keep_best;  // metric whose best checkpoint is kept, too; see BestFolder
};

// Names of the folders that the owner removes after it has published `newest_step`: all but those
// that the rules keep, of those up to this step. Checkpoints of later steps are damaged or belong
// to a generation that was cut off; otherwise the training would have resumed from them.
std::vector<std::string> FoldersToRemove(absl::Span<const Folder> folders, const Owner& owner,
                                         uint64_t newest_step, const RetentionRules& rules);

// Whether `name` is an unfinished or removed folder that the owner may delete.
bool IsLeftover(absl::string_view name, const Owner& owner);

}  // namespace muster::train

#endif  // MUSTER_TRAINER_CHECKPOINT_RETENTION_H_
