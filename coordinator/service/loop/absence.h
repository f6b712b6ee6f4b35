// Tells a loop that did not run from one that is busy.
#ifndef MUSTER_COORDINATOR_SERVICE_LOOP_ABSENCE_H_
#define MUSTER_COORDINATOR_SERVICE_LOOP_ABSENCE_H_

#include "absl/time/time.h"
#include "common/time/time.h"

namespace muster::service {

// Measures for how long a loop's thread could not run although it had something to do: because the
// process was stopped, starved of CPU, or on a machine that was suspended. What was sent to it in
// the meantime is still in kernel buffers and arrives over the next turns; until then, no node or
// rank may be treated as silent. While a loop is busy, messages reach its queue, and it needs no
// such consideration.
//
// Not thread-safe.
class AbsenceMeter {
 public:
  AbsenceMeter(SteadyTime now, absl::Duration cpu) : last_(now), last_cpu_(cpu) {}

  // Ends a turn of the loop at `now`, for which `cpu` is the CPU time of the thread. Since the last
  // call, it has waited for `idle` for something to do, and for `blocked` for the disk.
  void EndTurn(SteadyTime now, absl::Duration cpu, absl::Duration idle, absl::Duration blocked);

  // The extension of deadlines that are due at `now`: the absences since the last call, and some
  // time for catching up. That time is granted at most once per kCatchUpInterval (20 s), so that
  // deadlines do not recede for longer than the loop is absent and a tenth of the time.
  absl::Duration TakeExtension(SteadyTime now);

 private:
  SteadyTime last_;
  absl::Duration last_cpu_;
  absl::Duration absent_;
  SteadyTime next_catch_up_;
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_LOOP_ABSENCE_H_
