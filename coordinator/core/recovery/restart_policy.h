// Decides whether a job whose generation failed starts again, and when.
//
// A failure of the program (an exit, a hang, a rendezvous that timed out) uses up one of the
// restarts that the spec allows. They are counted since the last completed step, so that a job that
// makes progress is never out of restarts. Lost nodes and failed launches use up none: they are
// repeated after growing delays, but only a bounded number of times in a row.
#ifndef MUSTER_COORDINATOR_CORE_RECOVERY_RESTART_POLICY_H_
#define MUSTER_COORDINATOR_CORE_RECOVERY_RESTART_POLICY_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "coordinator/core/jobs/job.h"

namespace muster::core {

// The number of lost nodes and failed launches in a row after which a job fails. The delays between
// them add up to four minutes.
inline constexpr uint32_t kMaxFailedAttempts = 10;
// A generation that was RUNNING for this long, or completed a step, ends such a row.
inline constexpr absl::Duration kFirmRun = absl::Minutes(1);

struct RestartDecision {
  bool restart = false;
  absl::Duration delay;  // until the next generation may start
  std::string why_not;   // added to the failure's message; empty when there is nothing to add
};

// Counts the first failure of the generation that has just ended, which was RUNNING for `run_time`.
RestartDecision DecideRestart(Job& job, absl::Duration run_time);

// Notes that a rank has reported this step. Returns whether this gave back restarts.
bool NoteStep(Job& job, uint64_t step);

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_RECOVERY_RESTART_POLICY_H_
