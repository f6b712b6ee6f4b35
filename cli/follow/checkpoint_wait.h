// Decides when a requested checkpoint has been written.
#ifndef MUSTER_CLI_FOLLOW_CHECKPOINT_WAIT_H_
#define MUSTER_CLI_FOLLOW_CHECKPOINT_WAIT_H_

#include "absl/status/statusor.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::cli {

// Whether the job, as it is `now`, has a checkpoint of at least the step that it had reached when
// the checkpoint was requested. Errors: ABORTED if it will not write the requested one, because it
// could not be written or the training ended or restarted before.
absl::StatusOr<bool> IsCheckpointWritten(const v1::Job& requested, const v1::Job& now);

}  // namespace muster::cli

#endif  // MUSTER_CLI_FOLLOW_CHECKPOINT_WAIT_H_
