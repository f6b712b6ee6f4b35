#include "cli/follow/checkpoint_wait.h"

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "cli/exit_code.h"
#include "cli/text/job_text.h"

namespace muster::cli {

absl::StatusOr<bool> IsCheckpointWritten(const v1::Job& requested, const v1::Job& now) {
  const v1::CheckpointStatus& status = now.checkpoint();
  // Without a step, the newest checkpoint is one that the training has yet to write.
  const uint64_t wanted = std::max<uint64_t>(requested.progress().step(), 1);
  if (status.step() >= wanted) return true;
  if (IsOver(now.state())) {
    return absl::AbortedError(absl::StrCat("job ", now.job_id(), " ", StateWord(now.state()),
                                           " without a checkpoint of step ", wanted, " or later"));
  }
  if (now.generation() != requested.generation()) {
    return absl::AbortedError(absl::StrCat("job ", now.job_id(),
                                           " stopped without a checkpoint of step ", wanted,
                                           " or later, and started again"));
  }
  if (status.failures() > requested.checkpoint().failures()) {
    return absl::AbortedError(absl::StrCat("the checkpoint of step ", status.failed_step(),
                                           " cannot be written to ", status.dir(), ": ",
                                           status.failure()));
  }
  return false;
}

}  // namespace muster::cli
