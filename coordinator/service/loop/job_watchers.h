// Notifies watchers about changes of jobs.
#ifndef MUSTER_COORDINATOR_SERVICE_LOOP_JOB_WATCHERS_H_
#define MUSTER_COORDINATOR_SERVICE_LOOP_JOB_WATCHERS_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/ids.h"
#include "common/limits.h"
#include "common/time/time.h"
#include "coordinator/core/core.h"
#include "coordinator/core/owners/memory_budget.h"
#include "coordinator/service/loop/core_loop.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::service {

// One watch. OnJob is a release: calls are sequential and in order, and it must not block.
class JobWatcher {
 public:
  virtual ~JobWatcher() = default;
  virtual void OnJob(std::shared_ptr<const v1::Job> job) = 0;
  // The coordinator is shutting down; no further calls follow.
  virtual void OnShutdown() = 0;
};

// Add and AfterTurn must be called on the core thread, so that no change is missed between reading
// the job and adding the watch.
class JobWatchers {
 public:
  // RESOURCE_EXHAUSTED beyond limits::kWatchersPerJob and kWatchers; UNAVAILABLE after Shutdown.
  absl::Status Add(const JobId& job, std::shared_ptr<JobWatcher> watcher);
  // Removes the watcher if it is there. A release in progress may still reach it. Thread-safe.
  void Remove(const JobId& job, const JobWatcher* watcher);

  // Adds a release for each changed job that has watchers and differs from its last release.
  void AfterTurn(const core::Core& core, absl::Span<const JobId> changed, const Time& now,
                 std::vector<Release>& releases);

  // Replaces the bytes that a watch of the caller holds because they are not read. Returns false,
  // without effect, if they are more than before and the caller, or all, have too many: see
  // limits::kUnreadWatchBytes. Thread-safe.
  bool CountUnread(const std::string& caller, size_t before, size_t now);

  // Notifies all watchers and refuses new ones. Thread-safe.
  void Shutdown();

  // The number of watchers. Thread-safe.
  size_t size() const;

 private:
  struct Watched {
    std::vector<std::shared_ptr<JobWatcher>> watchers;
    std::string last;  // the last released job, serialized
  };
  mutable absl::Mutex mutex_;
  absl::flat_hash_map<JobId, Watched> watched_ ABSL_GUARDED_BY(mutex_);
  size_t count_ ABSL_GUARDED_BY(mutex_) = 0;
  core::MemoryBudget unread_ ABSL_GUARDED_BY(mutex_){limits::kUnreadWatchBytes};
  bool shut_down_ ABSL_GUARDED_BY(mutex_) = false;
};

inline bool IsTerminal(v1::JobState state) { return state >= v1::SUCCEEDED; }

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_LOOP_JOB_WATCHERS_H_
