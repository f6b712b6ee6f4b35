// The worker's side of a hosted c10d store: starts, adopts and stops its process, and reads what it
// reports.
#ifndef MUSTER_WORKER_AGENT_GENERATION_STORE_HOSTED_STORE_H_
#define MUSTER_WORKER_AGENT_GENERATION_STORE_HOSTED_STORE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/http/address.h"
#include "common/time/time.h"
#include "proto/muster/v1/job.pb.h"
#include "proto/muster/v1/worker.pb.h"
#include "worker/agent/generation/generation_context.h"
#include "worker/agent/generation/ranks/shim_process.h"
#include "worker/agent/job_user.h"
#include "worker/c10d_store/status_file.h"

namespace muster::agent {

// A process beside the ranks of node rank 0 that serves PyTorch's TCPStore protocol at the master
// endpoint of a command job. It runs under a shim of its own: it outlives the worker, and ends at
// the deadline of the job's lease. Must be used on the loop's thread. The destructor does not stop
// the process.
class HostedStore {
 public:
  // Called on the loop, never from within a method of this class. The owner must not destroy the
  // HostedStore in them.
  struct Events {
    // Once after Start: the store listens, or could not be started.
    std::function<void(const absl::Status& status)> on_ready;
    // No process of the store is left. Also called after a failed start.
    std::function<void()> on_ended;
  };

  // Starts the store at the endpoint, whose port the worker holds. It runs as the user of the
  // ranks, if that is not the worker's: it serves a network port, and looks into the ranks.
  static absl::StatusOr<std::unique_ptr<HostedStore>> Start(const GenerationContext& context,
                                                            const v1::Launch& launch,
                                                            const Address& endpoint,
                                                            const std::optional<JobUser>& user,
                                                            Events events);
  // Adopts the store that an earlier worker started; null if it started none.
  static std::unique_ptr<HostedStore> Adopt(const GenerationContext& context,
                                            const v1::Launch& launch, Events events);
  ~HostedStore();
  HostedStore(const HostedStore&) = delete;
  HostedStore& operator=(const HostedStore&) = delete;

  bool running() const { return shim_ != nullptr; }
  void Stop();
  // Replaces the deadline of the lease; 0: none, the store then ends if there is no worker for
  // failure_timeout.
  void SetLeaseDeadline(int64_t boot_ms);
  // The line to the store's shim, which must be running.
  const std::shared_ptr<ShimLine>& line() const { return shim_->line(); }

  // Reads the status; returns whether it has changed.
  bool ReadStatus();
  const c10d_store::Status& status() const { return status_; }
  // Returns why the store has ended without a stop; empty if it runs or was stopped.
  const std::string& failure() const { return failure_; }
  // The waits, with their present age. None once the store has ended.
  v1::StoreWaits Waits() const;

 private:
  HostedStore(const GenerationContext& context, std::string directory, Events events)
      : loop_(*context.loop), directory_(std::move(directory)), events_(std::move(events)) {}

  std::optional<std::string> ReadStatusFile() const;

  ShimProcess::Events ShimEvents();
  // Polls until the store listens.
  void AwaitReady();
  void OnEnded(const std::optional<shim::ExitRecord>& record);

  EventLoop& loop_;
  const std::string directory_;
  std::optional<uid_t> uid_;  // of the store, if it is not the worker's
  const Events events_;
  std::unique_ptr<ShimProcess> shim_;  // null once no process is left
  bool awaits_ready_ = false;
  SteadyTime ready_deadline_;
  std::optional<EventLoop::TimerId> timer_;
  c10d_store::Status status_;
  std::string failure_;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_GENERATION_STORE_HOSTED_STORE_H_
