#include "trainer/checkpoint/job_checkpoints.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace muster::train {
namespace {

namespace fs = std::filesystem;

bool IsSameDirectory(const std::string& a, const std::string& b) {
  std::error_code error;
  return fs::path(a).lexically_normal() == fs::path(b).lexically_normal() ||
         fs::equivalent(a, b, error);
}

std::string WriterOf(const CheckpointState& state) {
  return state.job_id.empty() ? "an unknown job" : absl::StrCat("job ", state.job_id);
}

// Checks that `newest`, the newest checkpoint in the job's directory, was written by this job.
absl::Status CheckWriter(const CheckpointOptions& own,
                         const std::optional<CheckpointState>& newest) {
  if (!newest.has_value() || newest->job_id == own.job_id) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "checkpoint directory ", own.path, " holds step ", newest->step, " of ", WriterOf(*newest),
      ", and this is job ", own.job_id, "; set checkpoint.resume_from: ", own.path,
      " to continue from it, or choose another dir"));
}

absl::Status CheckTraining(const JobCheckpointOptions& options, const JobCheckpoints& found) {
  if (!found.newest.has_value() || found.newest->training_digest == options.training_digest) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "checkpoint directory ", found.source->path(), " holds step ", found.newest->step,
      " of another training (", WriterOf(*found.newest),
      "), whose model, data set, batch, precision, seed or augmentation differs; choose another "
      "directory, or start from its weights with init_from"));
}

}  // namespace

absl::StatusOr<JobCheckpoints> OpenJobCheckpoints(const JobCheckpointOptions& options) {
  const CheckpointOptions& own = options.own;
  JobCheckpoints found;
  const bool adopts = IsSameDirectory(own.path, options.resume_from);
  if (!own.path.empty()) {
    // Checked before the directory is opened, which would take it away from a job that still runs.
    if (!adopts) {
      RETURN_IF_ERROR(CheckWriter(own, CheckpointDirectory::OpenUnfenced(own.path).PeekNewest()));
    }
    ASSIGN_OR_RETURN(found.own, options.writes ? CheckpointDirectory::OpenForWriting(own)
                                               : CheckpointDirectory::OpenForReading(own));
    found.source = found.own;
    found.newest = found.own->FindNewestValid();
    // Another job may have written to the directory meanwhile.
    if (!adopts) RETURN_IF_ERROR(CheckWriter(own, found.newest));
    if (found.newest.has_value() && found.newest->job_id == own.job_id) {
      found.own_step = found.newest->step;
    }
  }
  if (!found.newest.has_value() && !options.resume_from.empty() && !adopts) {
    found.source = CheckpointDirectory::OpenUnfenced(options.resume_from);
    found.newest = found.source->FindNewestValid();
  }
  RETURN_IF_ERROR(CheckTraining(options, found));
  return found;
}

}  // namespace muster::train
