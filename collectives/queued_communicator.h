// Base of the CPU backends: runs Operations in order and keeps the first error.
#ifndef MUSTER_COLLECTIVES_QUEUED_COMMUNICATOR_H_
#define MUSTER_COLLECTIVES_QUEUED_COMMUNICATOR_H_

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
#include "collectives/communicator.h"
#include "collectives/lane.h"
#include "collectives/operation.h"
#include "collectives/operation_communicator.h"

namespace muster::collectives {

// Collectives run in one lane; Sends to a peer and Recvs from a peer each have their own lane,
// created on first use, so that two ranks may send to each other and then receive.
class QueuedCommunicator : public OperationCommunicator {
 public:
  // Allocates heap memory aligned to cache lines; overridden by backends with better memory.
  absl::StatusOr<std::unique_ptr<Allocation>> Allocate(size_t size_bytes) override;

  void Abort(const absl::Status& reason) final;
  absl::Status status() const final { return failed() ? failure() : absl::OkStatus(); }

 protected:
  // `members` as in GroupOptions.
  QueuedCommunicator(std::string name, uint32_t rank, std::vector<uint32_t> members);
  ~QueuedCommunicator() override;

  // Runs one operation to completion, on a lane's thread or a waiting caller's. At most one
  // collective at a time, and one Send and one Recv per peer. Must return soon after Interrupt.
  virtual absl::Status Execute(const Operation& operation) = 0;

  // Called once, on the first failure, from any thread: wakes Execute and notifies the peers. Never
  // blocks.
  virtual void Interrupt(const absl::Status& failure) = 0;

  // Records `status` unless the communicator has already failed. Returns the first failure.
  absl::Status Fail(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  absl::Status failure() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Must be the first call of every backend's destructor: Execute and Interrupt are not called
  // after it. Pending operations complete with ABORTED.
  void Close() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  std::shared_ptr<Work> Issue(const Operation& operation) final ABSL_LOCKS_EXCLUDED(mutex_);

  std::atomic<bool> failed_{false};

  mutable absl::Mutex mutex_;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  // Keyed by kind (kBarrier for all collectives) and peer.
  std::map<std::pair<Operation::Kind, uint32_t>, std::shared_ptr<Lane>> lanes_
      ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster::collectives

#endif  // MUSTER_COLLECTIVES_QUEUED_COMMUNICATOR_H_
