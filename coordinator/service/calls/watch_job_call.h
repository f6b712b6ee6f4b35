// One ClusterService.WatchJob stream.
#ifndef MUSTER_COORDINATOR_SERVICE_CALLS_WATCH_JOB_CALL_H_
#define MUSTER_COORDINATOR_SERVICE_CALLS_WATCH_JOB_CALL_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "coordinator/service/auth/caller_limit.h"
#include "coordinator/service/loop/core_loop.h"
#include "coordinator/service/loop/job_watchers.h"
#include "grpcpp/grpcpp.h"
#include "proto/muster/v1/cluster.pb.h"

namespace muster::service {

// Owns itself until the gRPC call is done. Keeps only the newest job that is not yet written, and
// ends when the caller has too much that is not read.
class WatchJobCall final : public grpc::ServerWriteReactor<v1::Job>,
                           public JobWatcher,
                           public std::enable_shared_from_this<WatchJobCall> {
 public:
  // `job` is an id or a unique prefix.
  static WatchJobCall* Start(AdmittedCaller caller, std::string job, CoreLoop& loop,
                             JobWatchers& watchers);

  void OnJob(std::shared_ptr<const v1::Job> job) override ABSL_LOCKS_EXCLUDED(mutex_);
  void OnShutdown() override;

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  WatchJobCall(AdmittedCaller caller, JobWatchers& watchers)
      : caller_(std::move(caller)), watchers_(watchers) {}
  Release Watch(const std::string& name, core::Core& core, const Time& now);
  void End(absl::Status status) ABSL_LOCKS_EXCLUDED(mutex_);
  // Counts the jobs that are kept. Returns false if they are too large.
  bool CountUnread() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Writes the newest job, or finishes the call, unless a write is in progress.
  void Proceed() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const AdmittedCaller caller_;
  JobWatchers& watchers_;

  absl::Mutex mutex_;
  std::shared_ptr<WatchJobCall> self_ ABSL_GUARDED_BY(mutex_);
  JobId job_id_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const v1::Job> newest_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const v1::Job> writing_ ABSL_GUARDED_BY(mutex_);
  size_t unread_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status end_status_ ABSL_GUARDED_BY(mutex_);
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_CALLS_WATCH_JOB_CALL_H_
