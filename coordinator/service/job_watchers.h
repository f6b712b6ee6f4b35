// Who waits for which job to change.
#ifndef MUSTER_COORDINATOR_SERVICE_JOB_WATCHERS_H_
#define MUSTER_COORDINATOR_SERVICE_JOB_WATCHERS_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/ids.h"
#include "common/time.h"
#include "coordinator/core/core.h"
#include "coordinator/service/core_loop.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::service {

// One call. OnJob is a release: never concurrent, in order, and it must not wait.
class JobWatcher {
 public:
  virtual ~JobWatcher() = default;
  virtual void OnJob(std::shared_ptr<const v1::Job> job) = 0;
  // The coordinator ends: no more will come.
  virtual void OnShutdown() = 0;
};

// Add and AfterTurn belong to the core's thread, so that no change falls between a look at the job
// and the watch.
class JobWatchers {
 public:
  // RESOURCE_EXHAUSTED beyond limits::kWatchersPerJob and kWatchers; UNAVAILABLE after Shutdown.
  absl::Status Add(const JobId& job, std::shared_ptr<JobWatcher> watcher);
  // Any thread. Without effect when it is not there. A release under way may still reach the
  // watcher.
  void Remove(const JobId& job, const JobWatcher* watcher);

  // Adds a release for each changed job that is watched and differs from what was released last.
  void AfterTurn(const core::Core& core, absl::Span<const JobId> changed, const Time& now,
                 std::vector<Release>& releases);

  // Any thread. Tells every watcher, and refuses new ones.
  void Shutdown();

  // Any thread.
  size_t size() const;

 private:
  struct Watched {
    std::vector<std::shared_ptr<JobWatcher>> watchers;
    std::string last;  // serialised
  };
  mutable absl::Mutex mutex_;
  absl::flat_hash_map<JobId, Watched> watched_ ABSL_GUARDED_BY(mutex_);
  size_t count_ ABSL_GUARDED_BY(mutex_) = 0;
  bool shut_down_ ABSL_GUARDED_BY(mutex_) = false;
};

inline bool IsTerminal(v1::JobState state) { return state >= v1::SUCCEEDED; }

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_JOB_WATCHERS_H_
