// The streams in progress. They end when their callers lose the right to them: a token was removed
// or has a lower role, a certificate was revoked or has expired.
#ifndef MUSTER_COORDINATOR_SERVICE_AUTH_LIVE_CALLS_H_
#define MUSTER_COORDINATOR_SERVICE_AUTH_LIVE_CALLS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/time/steady_notification.h"
#include "coordinator/service/auth/authorizer.h"

namespace muster::service {

// Thread-safe.
class LiveCalls {
 public:
  // Ends a call with this status. May be called after the call has ended, and must not block.
  using End = std::function<void(const absl::Status&)>;

  // Looks for changes every quarter of a second. `authorizer` must outlive this object.
  explicit LiveCalls(Authorizer& authorizer);
  ~LiveCalls();

  // Adds a call of `method`, which the authorizer has just allowed; Remove ends its part here.
  uint64_t Add(std::string method, Authorizer::Caller caller, End end);
  void Remove(uint64_t id);

  // Ends the calls that the authorizer does not allow any more.
  void Check();

 private:
  struct Call {
    std::string method;
    Authorizer::Caller caller;
    End end;
    uint64_t checked = 0;  // Authorizer::epoch of the last check
  };

  void Run();

  Authorizer& authorizer_;
  absl::Mutex mutex_;
  uint64_t last_id_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<uint64_t, Call> calls_ ABSL_GUARDED_BY(mutex_);
  SteadyNotification stopped_;
  std::thread thread_;
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_AUTH_LIVE_CALLS_H_
