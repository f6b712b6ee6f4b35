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

// Checks that this job may use the checkpoints of the job that wrote `newest`.
absl::Status CheckWriter(const CheckpointOptions& own, const CheckpointState& newest) {
  if (newest.job_id == own.job_id) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "checkpoint directory ", own.path, " holds step ", newest.step, " of ", WriterOf(newest),
      ", and this is job ", own.job_id, "; set checkpoint.resume_from: ", own.path,
      " to continue from it, or choose another dir"));
}

absl::Status CheckTraining(const std::string& path, const TrainingIdentity& training,
                           const CheckpointState& newest) {
  const std::string differences = TrainingDifferences(newest, training);
  if (differences.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("checkpoint directory ", path, " holds step ", newest.step,
                   " of another training (", WriterOf(newest), "): ", differences,
                   "; choose another directory, or start from its weights with init_from"));
}

}  // namespace

absl::StatusOr<JobCheckpoints> OpenJobCheckpoints(const JobCheckpointOptions& options) {
  const bool adopts = IsSameDirectory(options.own.path, options.resume_from);
  CheckpointOptions own = options.own;
  own.shared = adopts;
  const Verifier verifier(options.cache, own.job_id, own.generation);
  JobCheckpoints found;
  if (!own.path.empty()) {
    found.own = CheckpointDirectory::OpenForReading(own);
    found.source = found.own;
    ASSIGN_OR_RETURN(found.newest, found.own->FindNewestValid(
                                       verifier, [&](const CheckpointState& state) -> absl::Status {
                                         if (!adopts) RETURN_IF_ERROR(CheckWriter(own, state));
                                         return CheckTraining(own.path, options.training, state);
                                       }));
    if (found.newest.has_value() && found.newest->state.job_id == own.job_id) {
      found.own_newest = CheckpointRef{found.newest->name, found.newest->state.step};
    }
  }
  if (!found.newest.has_value() && !options.resume_from.empty() && !adopts) {
    found.source = CheckpointDirectory::OpenReadOnly(options.resume_from);
    ASSIGN_OR_RETURN(found.newest,
                     found.source->FindNewestValid(verifier, [&](const CheckpointState& state) {
                       return CheckTraining(options.resume_from, options.training, state);
                     }));
  }
  if (options.writes && found.own.has_value()) {
    ASSIGN_OR_RETURN(found.own, CheckpointDirectory::OpenForWriting(own));
  }
  return found;
}

}  // namespace muster::train
