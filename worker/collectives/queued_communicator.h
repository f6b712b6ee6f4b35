// What all backends share: calls become Operations that run one by one, errors are sticky,
// arguments are checked.
#ifndef MUSTER_WORKER_COLLECTIVES_QUEUED_COMMUNICATOR_H_
#define MUSTER_WORKER_COLLECTIVES_QUEUED_COMMUNICATOR_H_

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "worker/collectives/communicator.h"
#include "worker/collectives/lane.h"
#include "worker/collectives/operation.h"

namespace muster::collectives {

// Collectives run in one lane; Sends to a peer and Recvs from a peer each have a lane of their own,
// begun on first use, so that two ranks may send to each other and then receive.
class QueuedCommunicator : public Communicator {
 public:
  uint32_t rank() const final { return rank_; }
  uint32_t size() const final { return static_cast<uint32_t>(members_.size()); }

  std::shared_ptr<Work> AllReduce(const void* send, void* recv, size_t count, DataType type,
                                  ReduceOp op) final;
  std::shared_ptr<Work> ReduceScatter(const void* send, void* recv, size_t recv_count,
                                      DataType type, ReduceOp op) final;
  std::shared_ptr<Work> AllGather(const void* send, void* recv, size_t send_count,
                                  DataType type) final;
  std::shared_ptr<Work> Broadcast(void* data, size_t count, DataType type, uint32_t root) final;
  std::shared_ptr<Work> Reduce(const void* send, void* recv, size_t count, DataType type,
                               ReduceOp op, uint32_t root) final;
  std::shared_ptr<Work> Gather(const void* send, void* recv, size_t send_count, DataType type,
                               uint32_t root) final;
  std::shared_ptr<Work> Scatter(const void* send, void* recv, size_t recv_count, DataType type,
                                uint32_t root) final;
  std::shared_ptr<Work> AllToAll(const void* send, void* recv, size_t count, DataType type) final;
  std::shared_ptr<Work> Send(const void* data, size_t count, DataType type, uint32_t peer) final;
  std::shared_ptr<Work> Recv(void* data, size_t count, DataType type, uint32_t peer) final;
  std::shared_ptr<Work> Barrier() final;

  // Heap memory, aligned to cache lines; a backend with better overrides it.
  absl::StatusOr<std::unique_ptr<Allocation>> Allocate(size_t size_bytes) override;

  void Abort(const absl::Status& reason) final;

 protected:
  // `members` as in GroupOptions.
  QueuedCommunicator(std::string name, uint32_t rank, std::vector<uint32_t> members);
  ~QueuedCommunicator() override;

  // Runs one operation to its end, on a lane's thread or a waiting caller's. At most one collective
  // at a time, and one Send and one Recv per peer. Must return soon after Interrupt.
  virtual absl::Status Execute(const Operation& operation) = 0;

  // Called once, on the first failure and from whichever thread met it: wakes Execute, lets the
  // peers know. Never blocks.
  virtual void Interrupt(const absl::Status& failure) = 0;

  // The first failure is the communicator's; returns it.
  absl::Status Fail(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  absl::Status failure() const ABSL_LOCKS_EXCLUDED(mutex_);

  // The first line of every backend's destructor: Execute and Interrupt are not called any more
  // after it. Operations still under way end with ABORTED.
  void Close() ABSL_LOCKS_EXCLUDED(mutex_);

  const std::string& name() const { return name_; }
  uint32_t job_rank(uint32_t group_rank) const { return members_[group_rank]; }

 private:
  std::shared_ptr<Work> Issue(const Operation& operation) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Check(const Operation& operation) const;

  const std::string name_;
  const uint32_t rank_;
  const std::vector<uint32_t> members_;
  std::atomic<bool> failed_{false};

  mutable absl::Mutex mutex_;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  // By kind (kBarrier for all collectives) and peer.
  std::map<std::pair<Operation::Kind, uint32_t>, std::shared_ptr<Lane>> lanes_
      ABSL_GUARDED_BY(mutex_);
};

// A Work that is done.
std::shared_ptr<Work> DoneWork(absl::Status status);

}  // namespace muster::collectives

#endif  // MUSTER_WORKER_COLLECTIVES_QUEUED_COMMUNICATOR_H_
