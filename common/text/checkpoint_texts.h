// Texts about a job's CheckpointStatus, for the command line and the status page.
#ifndef MUSTER_COMMON_TEXT_CHECKPOINT_TEXTS_H_
#define MUSTER_COMMON_TEXT_CHECKPOINT_TEXTS_H_

#include <string>

#include "proto/muster/v1/job.pb.h"

namespace muster {

// Path of the newest checkpoint; empty if there is none.
std::string NewestCheckpointPath(const v1::CheckpointStatus& status);

// Path of the best checkpoint by checkpoint.keep_best; empty if there is none.
std::string BestCheckpointPath(const v1::CheckpointStatus& status);

// "3 failed in this generation, the latest at step 400: no space left on device"; empty if none
// failed.
std::string CheckpointFailures(const v1::CheckpointStatus& status);

}  // namespace muster

#endif  // MUSTER_COMMON_TEXT_CHECKPOINT_TEXTS_H_
