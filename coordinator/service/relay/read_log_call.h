// One ClusterService.ReadLog stream: the client side of log transfers.
//
//   find ──► transfer ──► done            without follow, or for a given generation
//    ▲ │        │
//    │ │        │ end of the log, and the job continues
//    │ ▼        ▼
//   wait for the next generation          with follow and generation 0, until the job ends
//
// A node that has lost the log, or is not connected, is replaced by the end of the log that the
// coordinator kept, if the request accepts it. No thread is blocked in any of these states.
#ifndef MUSTER_COORDINATOR_SERVICE_RELAY_READ_LOG_CALL_H_
#define MUSTER_COORDINATOR_SERVICE_RELAY_READ_LOG_CALL_H_

#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "coordinator/service/auth/caller_limit.h"
#include "coordinator/service/loop/core_loop.h"
#include "coordinator/service/loop/job_watchers.h"
#include "coordinator/service/relay/log_relay.h"
#include "grpcpp/grpcpp.h"
#include "proto/muster/v1/cluster.pb.h"

namespace muster::service {

// Owns itself until the gRPC call is done.
class ReadLogCall final : public grpc::ServerWriteReactor<v1::LogChunk>,
                          public LogReader,
                          public JobWatcher,
                          public std::enable_shared_from_this<ReadLogCall> {
 public:
  // `request` must be valid.
  static ReadLogCall* Start(AdmittedCaller caller, const v1::ReadLogRequest& request,
                            CoreLoop& loop, JobWatchers& watchers, LogRelay& logs);

  // LogReader.
  void OnChunk(v1::LogChunk chunk) override ABSL_LOCKS_EXCLUDED(mutex_);
  void OnEnd(absl::Status status) override ABSL_LOCKS_EXCLUDED(mutex_);

  // JobWatcher, while it waits for a generation.
  void OnJob(std::shared_ptr<const v1::Job> job) override ABSL_LOCKS_EXCLUDED(mutex_);
  void OnShutdown() override;

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  ReadLogCall(AdmittedCaller caller, const v1::ReadLogRequest& request, CoreLoop& loop,
              JobWatchers& watchers, LogRelay& logs);
  // Queries the core for the location of the log, or for the generation after `read_generation_`.
  void Find() ABSL_LOCKS_EXCLUDED(mutex_);
  Release Locate(core::Core& core, const Time& now) ABSL_LOCKS_EXCLUDED(mutex_);
  Release WaitForGeneration(const v1::Job& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Transfer(const core::Core::RankLocation& location) ABSL_LOCKS_EXCLUDED(mutex_);
  // Whether the request accepts the end of the log that the coordinator kept, instead of this
  // error.
  bool AcceptsTailFor(const absl::Status& status) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Answers with the end of the log, or with `status` if the coordinator has none.
  Release SendTail(const core::Core& core, const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Ends the call when no write is in progress, and releases its transfer and watch.
  void End(absl::Status status) ABSL_LOCKS_EXCLUDED(mutex_);
  void FinishLocked(absl::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Follows() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return request_.follow() && request_.generation() == 0;
  }

  const AdmittedCaller caller_;
  CoreLoop& loop_;
  JobWatchers& watchers_;
  LogRelay& logs_;

  absl::Mutex mutex_;
  std::shared_ptr<ReadLogCall> self_ ABSL_GUARDED_BY(mutex_);
  v1::ReadLogRequest request_ ABSL_GUARDED_BY(mutex_);  // job_id is a prefix until resolved
  bool watching_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<TransferId> transfer_ ABSL_GUARDED_BY(mutex_);
  uint64_t read_generation_ ABSL_GUARDED_BY(mutex_) = 0;  // generation of the newest transfer
  absl::Status missing_ ABSL_GUARDED_BY(mutex_);          // the node's error, if it has no such log
  v1::LogChunk writing_ ABSL_GUARDED_BY(mutex_);
  bool write_under_way_ ABSL_GUARDED_BY(mutex_) = false;
  bool drained_ ABSL_GUARDED_BY(mutex_) = false;  // the last chunk had the end marker
  std::optional<absl::Status> end_status_ ABSL_GUARDED_BY(mutex_);
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_RELAY_READ_LOG_CALL_H_
