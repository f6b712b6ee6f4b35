// The part of NcclCommThread that runs on its callers' threads.
#include "collectives/nccl/nccl_comm_thread.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "collectives/nccl/nccl_task.h"
#include "collectives/operation_communicator.h"
#include "collectives/peer_status.h"
#include "common/status.h"
#include "common/time/now.h"
#include "glog/logging.h"

namespace muster::collectives {
namespace {

// Time after a failure for which callers wait for the thread to return from NCCL; part of the two
// seconds within which Abort ends all operations.
constexpr absl::Duration kLeaveTime = absl::Milliseconds(1500);

}  // namespace

class NcclCommThread::Handle final : public Work {
 public:
  Handle(std::shared_ptr<NcclCommThread> owner, std::shared_ptr<Task> task)
      : owner_(std::move(owner)), task_(std::move(task)) {}
  ~Handle() override { owner_->Begin(task_); }

  absl::Status Wait() override { return owner_->Await(task_); }
  absl::Status Join() override { return owner_->Join(task_); }
  bool Done() const override { return owner_->Begin(task_); }

 private:
  const std::shared_ptr<NcclCommThread> owner_;
  const std::shared_ptr<Task> task_;
};

NcclCommThread::NcclCommThread(const GroupOptions& options, Resources resources)
    : options_(options),
      library_(std::move(resources.library)),
      stream_(std::move(resources.stream)),
      flag_stream_(std::move(resources.flag_stream)),
      max_ctas_(resources.max_ctas),
      registrations_(library_, [this](NcclResult code, absl::string_view what, NcclComm comm) {
        return SettleOn(code, what, comm);
      }) {}

NcclCommThread::~NcclCommThread() {
  for (void* const data : scratch_) stream_->Free(data);
  if (barrier_word_ != nullptr) stream_->Free(barrier_word_);
}

std::shared_ptr<NcclCommThread> NcclCommThread::Start(const GroupOptions& options,
                                                      Resources resources) {
  std::shared_ptr<NcclCommThread> owner(new NcclCommThread(options, std::move(resources)));
  // The thread may outlive the caller of Close, so it shares ownership.
  owner->thread_ = std::thread([owner] { owner->Run(); });
  pthread_setname_np(owner->thread_.native_handle(), "nccl");
  return owner;
}

absl::Status NcclCommThread::AwaitConnected() {
  absl::MutexLock lock(&mutex_);
  const auto over = [this] {
    mutex_.AssertReaderHeld();
    return connected_ || left_;
  };
  mutex_.Await(absl::Condition(&over));
  return failure_;
}

std::shared_ptr<Work> NcclCommThread::Issue(const Operation& operation) {
  auto task = std::make_shared<Task>();
  task->operation = operation;
  const absl::StatusOr<kernels::DeviceStream::Mark> after = stream_->RecordComputeEvent();
  if (!after.ok()) return DoneWork(Fail(after.status()));
  task->after = *after;
  task->captured = stream_->IsCapturing();
  {
    absl::MutexLock lock(&mutex_);
    if (!failure_.ok()) return DoneWork(failure_);
    unfinished_.insert(task);
    if (operation.point_to_point()) {
      pending_p2p_.push_back(task);
    } else {
      task->begun = true;
      queue_.push_back({task});
      work_.Signal();
    }
  }
  // A stream cannot be captured by two threads at once, so wait until this operation is captured.
  if (task->captured && !operation.point_to_point()) {
    if (const absl::Status status = AwaitQueued(task); !status.ok()) return DoneWork(status);
  }
  return std::make_shared<Handle>(shared_from_this(), std::move(task));
}

absl::Status NcclCommThread::AwaitQueued(const std::shared_ptr<Task>& task) {
  absl::MutexLock lock(&mutex_);
  if (!task->begun) StartPendingP2p();
  const auto over = [this, &task] {
    mutex_.AssertReaderHeld();
    return task->queued || !failure_.ok();
  };
  mutex_.Await(absl::Condition(&over));
  // Wait until the thread has left NCCL: it may be capturing.
  if (!task->queued) AwaitLeft();
  return task->queued ? absl::OkStatus() : failure_;
}

absl::Status NcclCommThread::Join(const std::shared_ptr<Task>& task) {
  RETURN_IF_ERROR(AwaitQueued(task));
  return stream_->MakeComputeWait(task->end);
}

absl::Status NcclCommThread::status() const {
  absl::MutexLock lock(&mutex_);
  return failure_;
}

absl::StatusOr<std::shared_ptr<NcclBlock>> NcclCommThread::Allocate(size_t size_bytes) {
  // Shared with the task: the thread may fill it in after this caller has timed out.
  auto block = std::make_shared<absl::StatusOr<std::shared_ptr<NcclBlock>>>(nullptr);
  auto task = std::make_shared<Task>();
  task->call = [this, size_bytes, block] { return MakeBlock(size_bytes, *block); };
  {
    absl::MutexLock lock(&mutex_);
    if (!failure_.ok()) return failure_;
    unfinished_.insert(task);
    task->begun = true;
    queue_.push_back({task});
    work_.Signal();
  }
  RETURN_IF_ERROR(Await(task));
  return *block;
}

void NcclCommThread::Release(std::shared_ptr<NcclBlock> block) {
  absl::MutexLock lock(&mutex_);
  if (left_) return;
  released_.push_back(std::move(block));
  work_.Signal();
}

absl::Status NcclCommThread::Fail(const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  KeepFailure(status);
  return failure_;
}

void NcclCommThread::KeepFailure(const absl::Status& status) {
  if (!failure_.ok() || status.ok()) return;
  SetFlag();
  failure_ = status;
  failed_ = SteadyNow();
  leave_by_.emplace(kLeaveTime);
  work_.Signal();
  have_left_.SignalAll();
}

SteadyTime NcclCommThread::FailureTime() const {
  absl::MutexLock lock(&mutex_);
  return failure_.ok() ? SteadyNow() : failed_;
}

void NcclCommThread::AwaitLeft() {
  while (!left_ && !leave_by_->passed()) have_left_.WaitUntil(&mutex_, *leave_by_);
}

void NcclCommThread::Close() {
  bool left = false;
  {
    absl::MutexLock lock(&mutex_);
    closing_ = true;
    work_.Signal();
    const absl::Status closed = absl::AbortedError("the communicator is closed");
    if (!unfinished_.empty()) KeepFailure(closed);
    const Deadline finalized(kLeaveTime);
    while (failure_.ok() && !left_ && !finalized.passed()) have_left_.WaitUntil(&mutex_, finalized);
    if (!failure_.ok()) AwaitLeft();
    left = left_;
    if (!left) KeepFailure(closed);
  }
  if (left) {
    thread_.join();
  } else {
    LOG(ERROR) << options_.name << ": NCCL did not return; abandoning its thread";
    thread_.detach();
  }
}

absl::Status NcclCommThread::Await(const std::shared_ptr<Task>& task) {
  absl::MutexLock lock(&mutex_);
  if (!task->begun) StartPendingP2p();
  const auto over = [this, &task] {
    mutex_.AssertReaderHeld();
    return task->done || !failure_.ok();
  };
  mutex_.Await(absl::Condition(&over));
  // The caller's memory is safe to reuse only when the thread has left NCCL.
  if (!task->done) AwaitLeft();
  return task->done ? task->status : failure_;
}

bool NcclCommThread::Begin(const std::shared_ptr<Task>& task) {
  // As in Issue, the caller must not continue before the operation is captured.
  if (task->captured) return AwaitQueued(task).ok();
  absl::MutexLock lock(&mutex_);
  if (!task->begun) StartPendingP2p();
  return task->done;
}

void NcclCommThread::StartPendingP2p() {
  for (const std::shared_ptr<Task>& task : pending_p2p_) task->begun = true;
  if (pending_p2p_.empty()) return;
  queue_.push_back(std::move(pending_p2p_));
  pending_p2p_.clear();
  work_.Signal();
}

absl::Status NcclCommThread::Interrupted() const {
  {
    absl::MutexLock lock(&mutex_);
    if (!failure_.ok() || connected_) return failure_;
  }
  return options_.cancelled == nullptr ? absl::OkStatus() : options_.cancelled();
}

}  // namespace muster::collectives
