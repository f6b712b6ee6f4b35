// Asks the core from a thread that may wait.
#ifndef MUSTER_COORDINATOR_SERVICE_HTTP_STREAMS_CORE_QUERY_H_
#define MUSTER_COORDINATOR_SERVICE_HTTP_STREAMS_CORE_QUERY_H_

#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/time/steady_notification.h"
#include "coordinator/core/core.h"
#include "coordinator/service/loop/core_loop.h"

namespace muster::service {

inline constexpr absl::Duration kQueryPatience = absl::Seconds(1);

// Runs `read` on the core thread and returns its result. What it captures must be copies, because
// it may run after this has returned. Errors: those of `read`; DEADLINE_EXCEEDED when the core is
// busy for kQueryPatience, UNAVAILABLE when it is stopping.
template <typename Result, typename Read>
absl::StatusOr<Result> AskCore(CoreLoop& loop, Read read) {
  struct Answer {
    SteadyNotification done;
    absl::StatusOr<Result> result = absl::UnavailableError("the coordinator is shutting down");
  };
  auto answer = std::make_shared<Answer>();
  const bool queued = loop.PushQuery(
      [answer, read = std::move(read)](core::Core& core, const Time& now) mutable -> Release {
        answer->result = read(core, now);
        return [answer] { answer->done.Notify(); };
      });
  if (!queued) return absl::UnavailableError("the coordinator is shutting down");
  if (!answer->done.WaitFor(kQueryPatience)) {
    return absl::DeadlineExceededError("the coordinator is busy");
  }
  return std::move(answer->result);
}

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_HTTP_STREAMS_CORE_QUERY_H_
