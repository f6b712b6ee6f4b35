// Opens the checkpoint directories of a job and chooses the checkpoint to resume from.
//
// A job resumes from the newest checkpoint that it wrote itself. Without one, it continues from the
// newest checkpoint in `resume_from`, which may be the directory that it writes to. A directory
// with checkpoints of another job is refused otherwise, so that no job continues another one by
// accident.
#ifndef MUSTER_TRAINER_CHECKPOINT_JOB_CHECKPOINTS_H_
#define MUSTER_TRAINER_CHECKPOINT_JOB_CHECKPOINTS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/training_identity.h"
#include "trainer/data/cache_file.h"

namespace muster::train {

struct JobCheckpointOptions {
  CheckpointOptions own;    // an empty path: the job writes no checkpoints
  std::string resume_from;  // directory with another job's checkpoints; empty: none
  bool writes = false;      // whether this rank writes the job's checkpoints
  TrainingIdentity training;
  data::Cache cache;  // for Verifier
};

struct JobCheckpoints {
  // The job's directory; absent: no checkpoints are written.
  std::optional<CheckpointDirectory> own;
  std::optional<CheckpointRef> own_newest;  // newest valid checkpoint of this job in it
  // The checkpoint that this rank can resume from, and the directory that holds it.
  std::optional<FoundCheckpoint> newest;
  std::optional<CheckpointDirectory> source;
};

// FAILED_PRECONDITION if the job's directory holds checkpoints only of other jobs and is not
// `resume_from`, or if the newest checkpoint belongs to a different training; no directory has been
// changed then. Otherwise the errors of CheckpointDirectory.
absl::StatusOr<JobCheckpoints> OpenJobCheckpoints(const JobCheckpointOptions& options);

}  // namespace muster::train

#endif  // MUSTER_TRAINER_CHECKPOINT_JOB_CHECKPOINTS_H_
