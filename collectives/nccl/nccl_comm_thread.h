// The single thread that calls NCCL for a communicator.
#ifndef MUSTER_COLLECTIVES_NCCL_NCCL_COMM_THREAD_H_
#define MUSTER_COLLECTIVES_NCCL_NCCL_COMM_THREAD_H_

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "collectives/communicator.h"
#include "collectives/nccl/hierarchy.h"
#include "collectives/nccl/nccl_calls.h"
#include "collectives/nccl/nccl_library.h"
#include "collectives/nccl/nccl_memory.h"
#include "collectives/operation.h"
#include "common/time/deadline.h"
#include "common/time/steady_cond_var.h"
#include "common/time/time.h"
#include "kernels/device_stream.h"

namespace muster::collectives {

// The thread makes every call on the communicator, including the abort, so that no thread is inside
// NCCL when it aborts. The communicator is non-blocking: a call returns at once, and its completion
// is polled.
//
//   Start -> connecting -> serving -> closing: finalize, destroy
//               |             |          |
//               +-------------+----------+--> the first failure, of NCCL's or from outside: abort
//
// It polls calls, completion of operations and NCCL's asynchronous errors, because NCCL provides no
// notification. Between polls it sleeps a sixteenth of the time waited so far, at most a
// millisecond.
//
// Thread-safe.
class NcclCommThread : public std::enable_shared_from_this<NcclCommThread> {
 public:
  struct Resources {
    std::shared_ptr<const NcclLibrary> library;
    std::shared_ptr<kernels::DeviceStream> stream;       // of the communicator's operations
    std::shared_ptr<kernels::DeviceStream> flag_stream;  // its flag is set on failure
    int max_ctas = 0;                                    // see NcclParts
  };
  // Starts the thread, which connects.
  static std::shared_ptr<NcclCommThread> Start(const GroupOptions& options, Resources resources);
  ~NcclCommThread();

  // Waits until every rank of the group has connected and completed a first collective.
  absl::Status AwaitConnected() ABSL_LOCKS_EXCLUDED(mutex_);

  // Collectives start in the order of issue. Sends and Recvs are collected and start as one group
  // when a caller waits for one of them, joins it, polls it, or drops its Work. While the device
  // captures a graph, an operation is captured when this call or, for Sends and Recvs, the call
  // that starts it returns, and is done then; a failure at a launch is reported only by status().
  std::shared_ptr<Work> Issue(const Operation& operation) ABSL_LOCKS_EXCLUDED(mutex_);

  // Allocates device memory, registered with NCCL where supported. Collective, and ordered after
  // operations issued before. RESOURCE_EXHAUSTED, and the communicator's failure.
  absl::StatusOr<std::shared_ptr<NcclBlock>> Allocate(size_t size_bytes)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Releases a block that is no longer used. Never blocks.
  void Release(std::shared_ptr<NcclBlock> block) ABSL_LOCKS_EXCLUDED(mutex_);

  // Records `status` unless the communicator has already failed, and returns the first failure.
  // Never blocks. All pending operations complete with it as soon as the thread has left NCCL, or
  // after kLeaveTime if NCCL does not return.
  absl::Status Fail(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status status() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Ends the thread; pending operations complete with ABORTED. Called once. A thread that is stuck
  // in NCCL is abandoned.
  void Close() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Task;
  class Handle;
  using Batch = std::vector<std::shared_ptr<Task>>;
  struct InFlight {
    kernels::DeviceStream::Mark end;
    Batch batch;
  };

  NcclCommThread(const GroupOptions& options, Resources resources);

  // Called by any thread.
  absl::Status Await(const std::shared_ptr<Task>& task) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Join(const std::shared_ptr<Task>& task) ABSL_LOCKS_EXCLUDED(mutex_);
  // Waits until the operation is in the stream or has failed.
  absl::Status AwaitQueued(const std::shared_ptr<Task>& task) ABSL_LOCKS_EXCLUDED(mutex_);
  // Starts the operation if it has not started; returns whether it is done.
  bool Begin(const std::shared_ptr<Task>& task) ABSL_LOCKS_EXCLUDED(mutex_);
  void StartPendingP2p() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Before any operation is cut short, so that kernels that run afterwards see the failure.
  void SetFlag() { flag_stream_->flag() = 1; }
  void KeepFailure(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // After a failure: waits until the thread has left NCCL, at most until leave_by_.
  void AwaitLeft() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Interrupted() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Called by the owner's thread.
  void Run();
  absl::Status Connect();
  absl::Status Serve();
  absl::Status Finalize();
  // Aborts what has not been finalized. After a failure, logs how long each phase took: the process
  // may end much later.
  void Leave(absl::Status status) ABSL_LOCKS_EXCLUDED(mutex_);
  SteadyTime FailureTime() const ABSL_LOCKS_EXCLUDED(mutex_);  // now without a failure
  void Drain();
  absl::Status Launch(Batch batch);
  // Runs the callback of a task that is not an operation.
  absl::Status Call(const std::shared_ptr<Task>& task) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status MakeBlock(size_t size_bytes, absl::StatusOr<std::shared_ptr<NcclBlock>>& block);
  // Called while no operation that might use the released blocks is in flight.
  absl::Status DeregisterReleased() ABSL_LOCKS_EXCLUDED(mutex_);
  // Splits the communicator into LOCAL and CROSS communicators and runs a first collective on each.
  absl::Status Split(NcclConfig config);
  absl::Status CallOn(NcclLevel level, absl::Span<const Operation> operations,
                      absl::string_view what);
  // Waits until NCCL has completed a call on the communicator that returned `code`. Every call on a
  // communicator is followed by this before the next one.
  absl::Status Settle(NcclResult code, absl::string_view what, NcclLevel level = NcclLevel::kWorld);
  absl::Status SettleOn(NcclResult code, absl::string_view what, NcclComm comm);
  NcclGroup& group(NcclLevel level) { return groups_[static_cast<size_t>(level)]; }
  // Completes operations that the stream has finished; checks for timeouts.
  absl::Status PollCompletions();
  absl::Status CheckAsyncError();
  // Asynchronous state of the communicator: kNcclInProgress until the last call on it has
  // completed.
  NcclResult AsyncError(NcclComm comm) const;
  enum class Until { kWork, kInterrupted };
  void Pause(Until until) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status TimeOut(absl::string_view what) const;
  static std::string NameOf(const Batch& batch);  // describes its first operation
  absl::StatusOr<void*> Scratch(size_t bytes);

  const GroupOptions options_;
  const std::shared_ptr<const NcclLibrary> library_;
  const std::shared_ptr<kernels::DeviceStream> stream_;
  const std::shared_ptr<kernels::DeviceStream> flag_stream_;
  const int max_ctas_;

  // Used by the owner's thread only.
  std::array<NcclGroup, kNcclLevels> groups_;  // by level; comm is null until it is created
  std::deque<InFlight> in_flight_;
  SteadyTime last_progress_;         // last time an operation started from idle, or completed
  absl::Duration progress_timeout_;  // timeout until the next progress
  void* barrier_word_ = nullptr;
  NcclRegistrations registrations_;
  bool logged_memory_kind_ = false;
  std::vector<void*> scratch_;  // the last buffer is in use; earlier ones may still be read
  size_t scratch_bytes_ = 0;

  mutable absl::Mutex mutex_;
  SteadyCondVar work_;  // signals the thread: queue_, released_, closing_ or failure_ has changed
  SteadyCondVar have_left_;  // signals callers that wait for left_
  bool connected_ ABSL_GUARDED_BY(mutex_) = false;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  bool left_ ABSL_GUARDED_BY(mutex_) = false;  // the thread makes no more calls
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  SteadyTime failed_ ABSL_GUARDED_BY(mutex_);                 // time of the failure
  std::optional<Deadline> leave_by_ ABSL_GUARDED_BY(mutex_);  // set on failure
  Batch pending_p2p_ ABSL_GUARDED_BY(mutex_);
  std::deque<Batch> queue_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<NcclBlock>> released_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_set<std::shared_ptr<Task>> unfinished_ ABSL_GUARDED_BY(mutex_);

  std::thread thread_;
};

}  // namespace muster::collectives

#endif  // MUSTER_COLLECTIVES_NCCL_NCCL_COMM_THREAD_H_
