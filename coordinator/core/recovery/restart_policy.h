// Decides whether a job whose generation failed starts again, and when.
//
// A failure of the program (an exit, a hang, a rendezvous that timed out) uses up one of the
// restarts that the spec allows. They are counted since the last completed step, so that a job that
// makes progress is never out of restarts; for a program that reports no steps, the
// count is never reset. Lost nodes and failed launches use up none: they are repeated, but only a
// bounded number of times in a row. Failures soon after the start are repeated after growing
// delays.
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
// A generation that was RUNNING for this long, or completed a step, did not fail soon: it ends such
// a row, and a restart follows at once.
inline constexpr absl::Duration kFirmRun = absl::Minutes(1);

struct RestartDecision {
  bool restart = false;
  absl::Duration delay;  // time until the next generation may start
  std::string why_not;   // added to the failure's message; empty when there is nothing to add
};

// Counts the first failure of the generation that has just ended, which was RUNNING for `run_time`.
RestartDecision DecideRestart(Job& job, absl::Duration run_time);

// "attempt 3 of 10", or "restart 2 of 3" after a failure of the program: the next generation of a
// delayed job.
std::string NextAttempt(const Job& job);
// Why the job is delayed.
std::string DelayReason(const Job& job);

// The node that the next generation uses only if the others do not suffice: the one that was lost,
// or that failed to launch ranks, in the generation before. Empty: none. A node with the job's only
// checkpoint is not avoided.
std::string NodeToAvoid(const Job& job);

// Notes that a rank has reported this step. Returns whether this gave back restarts.
bool NoteStep(Job& job, uint64_t step);

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_RECOVERY_RESTART_POLICY_H_
