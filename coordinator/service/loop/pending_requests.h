// Client calls that wait for the core's reply. Thread-safe.
#ifndef MUSTER_COORDINATOR_SERVICE_LOOP_PENDING_REQUESTS_H_
#define MUSTER_COORDINATOR_SERVICE_LOOP_PENDING_REQUESTS_H_

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/synchronization/mutex.h"
#include "common/ids.h"
#include "coordinator/core/event.h"

namespace muster::service {

class PendingRequests {
 public:
  // Called once, by Complete, or by FailAll with UNAVAILABLE.
  using Callback = absl::AnyInvocable<void(core::Reply)>;

  RequestId Add(Callback callback);
  // Completes a request; a reply without a waiting request is dropped.
  void Complete(core::Reply reply);
  // Fails all requests. Called when no reply can arrive any more.
  void FailAll();

 private:
  absl::Mutex mutex_;
  uint64_t last_id_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<RequestId, Callback> waiting_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_LOOP_PENDING_REQUESTS_H_
