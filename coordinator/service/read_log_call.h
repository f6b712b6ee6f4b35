// One ClusterService.ReadLog stream: the client's end of log transfers.
//
//   find ──► transfer ──► done                    without follow, or for a generation that was
//   named
//    │ ▲        │ drained, and the job goes on
//    ▼ │        ▼
//   wait for the next generation                  with follow and generation 0, until the job is
//   over
//
// No thread is held in any of them.
#ifndef MUSTER_COORDINATOR_SERVICE_READ_LOG_CALL_H_
#define MUSTER_COORDINATOR_SERVICE_READ_LOG_CALL_H_

#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "coordinator/service/core_loop.h"
#include "coordinator/service/job_watchers.h"
#include "coordinator/service/log_relay.h"
#include "grpcpp/grpcpp.h"
#include "proto/muster/v1/cluster.pb.h"

namespace muster::service {

// Owns itself until gRPC says that the call is done.
class ReadLogCall final : public grpc::ServerWriteReactor<v1::LogChunk>,
                          public LogReader,
                          public JobWatcher,
                          public std::enable_shared_from_this<ReadLogCall> {
 public:
  // `request` is valid.
  static ReadLogCall* Start(const v1::ReadLogRequest& request, CoreLoop& loop,
                            JobWatchers& watchers, LogRelay& logs);

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
  ReadLogCall(const v1::ReadLogRequest& request, CoreLoop& loop, JobWatchers& watchers,
              LogRelay& logs);
  // Asks the core where the log is, or for the generation after `read_generation_`.
  void Find() ABSL_LOCKS_EXCLUDED(mutex_);
  Release Look(core::Core& core, const Time& now) ABSL_LOCKS_EXCLUDED(mutex_);
  Release WaitForGeneration(const v1::Job& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Transfer(const core::Core::RankLocation& location) ABSL_LOCKS_EXCLUDED(mutex_);
  // Ends the call once no write is under way, and lets go of whatever it holds.
  void End(absl::Status status) ABSL_LOCKS_EXCLUDED(mutex_);
  void FinishLocked(absl::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Follows() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return request_.follow() && request_.generation() == 0;
  }

  CoreLoop& loop_;
  JobWatchers& watchers_;
  LogRelay& logs_;

  absl::Mutex mutex_;
  std::shared_ptr<ReadLogCall> self_ ABSL_GUARDED_BY(mutex_);
  v1::ReadLogRequest request_ ABSL_GUARDED_BY(mutex_);  // its job_id a prefix until found
  bool watching_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<TransferId> transfer_ ABSL_GUARDED_BY(mutex_);
  uint64_t read_generation_ ABSL_GUARDED_BY(mutex_) = 0;  // of the newest transfer
  v1::LogChunk writing_ ABSL_GUARDED_BY(mutex_);
  bool write_under_way_ ABSL_GUARDED_BY(mutex_) = false;
  bool drained_ ABSL_GUARDED_BY(mutex_) = false;  // the transfer's last chunk said end
  std::optional<absl::Status> end_status_ ABSL_GUARDED_BY(mutex_);
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_READ_LOG_CALL_H_
