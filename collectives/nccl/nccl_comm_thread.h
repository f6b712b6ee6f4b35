// The one thread that calls NCCL for a communicator.
#ifndef MUSTER_COLLECTIVES_NCCL_NCCL_COMM_THREAD_H_
#define MUSTER_COLLECTIVES_NCCL_NCCL_COMM_THREAD_H_

#include <array>
#include <deque>
#include <memory>
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
#include "kernels/device_stream.h"

namespace muster::collectives {

// Its thread makes every call on the communicator, the abort too, so that nobody is inside NCCL
// when it aborts. The communicator is non-blocking: a call returns at once, and what it began is
// polled.
//
//   Start -> connecting -> serving -> closing: finalize, destroy
//               |             |          |
//               +-------------+----------+--> the first failure, of NCCL's or from outside: abort
//
// It polls the calls, the ends of operations and NCCL's asynchronous errors: NCCL wakes nobody, so
// it sleeps in between, for a sixteenth of what it has waited already and at most a millisecond.
//
// Thread-safe.
class NcclCommThread : public std::enable_shared_from_this<NcclCommThread> {
 public:
  // Begins to connect.
  static std::shared_ptr<NcclCommThread> Start(const GroupOptions& options,
                                               std::shared_ptr<const NcclLibrary> library,
                                               std::shared_ptr<kernels::DeviceStream> stream);
  ~NcclCommThread();

  // Waits until every rank of the group has connected and met in a first collective.
  absl::Status AwaitConnected() ABSL_LOCKS_EXCLUDED(mutex_);

  // Collectives begin in the order of issue. Sends and Recvs are gathered, and begin as one group
  // when somebody waits for one of them, asks whether it is done, or drops its Work. Where the
  // device records, an operation is recorded when this or, of Sends and Recvs, its Join returns,
  // and is done then: of what becomes of it at a launch only status() tells.
  std::shared_ptr<Work> Issue(const Operation& operation) ABSL_LOCKS_EXCLUDED(mutex_);

  // Memory of the device that NCCL knows where it can. Collective, and behind what was issued
  // before. RESOURCE_EXHAUSTED, and the communicator's failure.
  absl::StatusOr<std::shared_ptr<NcclBlock>> Allocate(size_t size_bytes)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Nobody uses the block any more. Never blocks.
  void Release(std::shared_ptr<NcclBlock> block) ABSL_LOCKS_EXCLUDED(mutex_);

  // The first failure is the communicator's; returns it. Never blocks. Everything unfinished ends
  // with it as soon as the thread has left NCCL; if NCCL does not let it go within kLeaveTime,
  // nobody waits for that any longer.
  absl::Status Fail(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status status() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Ends the thread; what is unfinished ends with ABORTED. Call once. A thread that NCCL does not
  // let go is left behind.
  void Close() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Task;
  class Handle;
  using Batch = std::vector<std::shared_ptr<Task>>;
  struct UnderWay {
    kernels::DeviceStream::Mark end;
    Batch batch;
  };

  NcclCommThread(const GroupOptions& options, std::shared_ptr<const NcclLibrary> library,
                 std::shared_ptr<kernels::DeviceStream> stream);

  // For any thread.
  absl::Status Await(const std::shared_ptr<Task>& task) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Join(const std::shared_ptr<Task>& task) ABSL_LOCKS_EXCLUDED(mutex_);
  // Until the operation is in the stream, or will never be.
  absl::Status AwaitQueued(const std::shared_ptr<Task>& task) ABSL_LOCKS_EXCLUDED(mutex_);
  bool Begin(const Task& task) ABSL_LOCKS_EXCLUDED(mutex_);  // -> done
  void BeginGathered() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void KeepFailure(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Interrupted() const ABSL_LOCKS_EXCLUDED(mutex_);

  // For the owner's thread.
  void Run();
  absl::Status Connect();
  absl::Status Serve();
  absl::Status Retire();
  void Leave(absl::Status status) ABSL_LOCKS_EXCLUDED(mutex_);
  void Drain();
  absl::Status Launch(Batch batch);
  // Does what a task of the thread's own asks for.
  absl::Status Call(const std::shared_ptr<Task>& task) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status MakeBlock(size_t size_bytes, absl::StatusOr<std::shared_ptr<NcclBlock>>& block);
  // While nothing is under way that might still use them.
  absl::Status DeregisterReleased() ABSL_LOCKS_EXCLUDED(mutex_);
  // Splits the communicator into nodes and across them, and has each part meet.
  absl::Status Split(NcclConfig config);
  absl::Status CallOn(NcclLevel level, absl::Span<const Operation> operations,
                      absl::string_view what);
  // Waits until NCCL has completed what a call on the communicator, which returned `code`, began.
  // Every call on a communicator is followed by this before the next one.
  absl::Status Settle(NcclResult code, absl::string_view what, NcclLevel level = NcclLevel::kWorld);
  absl::Status SettleOn(NcclResult code, absl::string_view what, NcclComm comm);
  NcclGroup& group(NcclLevel level) { return groups_[static_cast<size_t>(level)]; }
  // Ends what the stream has reached; looks for time-outs.
  absl::Status Harvest();
  absl::Status CheckAsyncError();
  // State of the communicator: kNcclInProgress until the last call on it has completed.
  NcclResult AsyncError(NcclComm comm) const;
  enum class Until { kWork, kInterrupted };
  void Pause(Until until) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status TimeOut(absl::string_view what) const;
  static std::string NameOf(const Batch& batch);  // by its first operation
  absl::StatusOr<void*> Scratch(size_t bytes);

  const GroupOptions options_;
  const std::shared_ptr<const NcclLibrary> library_;
  const std::shared_ptr<kernels::DeviceStream> stream_;

  // The owner's thread alone uses these.
  std::array<NcclGroup, kNcclLevels> groups_;  // by level; a communicator is null until it is made
  std::deque<UnderWay> under_way_;
  absl::Time progress_;      // when something last began from rest, or ended
  absl::Duration patience_;  // for the next progress
  void* barrier_word_ = nullptr;
  NcclRegistrations registrations_;
  bool logged_memory_kind_ = false;
  std::vector<void*> scratch_;  // the last one is in use; earlier ones may still be read
  size_t scratch_bytes_ = 0;

  mutable absl::Mutex mutex_;
  bool connected_ ABSL_GUARDED_BY(mutex_) = false;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  bool left_ ABSL_GUARDED_BY(mutex_) = false;  // the thread makes no call any more
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  absl::Time leave_by_ ABSL_GUARDED_BY(mutex_);  // once failed
  Batch gathered_ ABSL_GUARDED_BY(mutex_);
  std::deque<Batch> queue_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<NcclBlock>> released_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_set<std::shared_ptr<Task>> unfinished_ ABSL_GUARDED_BY(mutex_);

  std::thread thread_;
};

}  // namespace muster::collectives

#endif  // MUSTER_COLLECTIVES_NCCL_NCCL_COMM_THREAD_H_
