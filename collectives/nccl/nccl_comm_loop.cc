// The part of NcclCommThread that runs on its own thread.
#include <pthread.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "collectives/nccl/failed_peer.h"
#include "collectives/nccl/nccl_comm_thread.h"
#include "collectives/nccl/nccl_config.h"
#include "collectives/nccl/nccl_task.h"
#include "collectives/nccl/unique_ids.h"
#include "collectives/operation_communicator.h"
#include "collectives/peer_status.h"
#include "common/status.h"
#include "common/time/deadline.h"
#include "common/time/now.h"
#include "glog/logging.h"

namespace muster::collectives {
namespace {

// How long the kernels of an aborted communicator may need to leave the device.
constexpr absl::Duration kDrainTime = absl::Milliseconds(300);
// How long ncclCommFinalize may wait for peers that send nothing more to this rank.
constexpr absl::Duration kFinalizeTime = absl::Milliseconds(500);
constexpr absl::Duration kShortestPause = absl::Microseconds(20);
constexpr absl::Duration kLongestPause = absl::Milliseconds(1);
// Poll interval while no operation is in flight: only asynchronous NCCL errors can arrive.
constexpr absl::Duration kIdlePause = absl::Milliseconds(100);
// Split communicators are finalized before their parent.
constexpr NcclLevel kPartsFirst[] = {NcclLevel::kLocal, NcclLevel::kCross, NcclLevel::kWorld};

}  // namespace

std::string NcclCommThread::NameOf(const Batch& batch) {
  return Describe(SignatureOf(batch.front()->operation));
}

void NcclCommThread::Run() {
  absl::Status status = Connect();
  if (status.ok()) {
    absl::MutexLock lock(&mutex_);
    connected_ = true;
  }
  if (status.ok()) status = Serve();
  // A failure here leads to an abort; no caller is waiting any longer.
  if (status.ok()) Finalize().IgnoreError();
  Leave(std::move(status));
}

absl::Status NcclCommThread::Connect() {
  last_progress_ = SteadyNow();
  progress_timeout_ = options_.connect_timeout;
  RETURN_IF_ERROR(stream_->Enter());
  ASSIGN_OR_RETURN(barrier_word_, stream_->Allocate(sizeof(int32_t)));
  // Barriers reduce the word; initialised, so that memory checkers do not report it.
  RETURN_IF_ERROR(stream_->Copy(barrier_word_, &stream_->flag(), sizeof(int32_t)));
  for (NcclGroup& group : groups_) {
    group.stream = stream_->native();
    group.barrier_word = barrier_word_;
  }
  NcclGroup& world = group(NcclLevel::kWorld);
  world.rank = options_.rank;
  world.size = options_.size;
  ASSIGN_OR_RETURN(std::vector<NcclUniqueId> ids,
                   ExchangeNcclUniqueIds(options_, *library_, Deadline(progress_timeout_),
                                         [this] { return Interrupted(); }));
  NcclConfig config = MakeNcclConfig(max_ctas_);
  const int size = static_cast<int>(options_.size);
  const int rank = static_cast<int>(options_.rank);
  const NcclResult begun =
      ids.size() == 1
          ? library_->init_rank(&world.comm, size, ids.front(), rank, &config)
          : library_->init_rank_scalable(&world.comm, size, rank, static_cast<int>(ids.size()),
                                         ids.data(), &config);
  RETURN_IF_ERROR(Settle(begun, "ncclCommInitRank"));
  if (options_.levels_of > 0) RETURN_IF_ERROR(Split(config));
  // The first collective performs the connection setup that NCCL defers.
  auto barrier = std::make_shared<Task>();
  RETURN_IF_ERROR(Launch({barrier}));
  while (!in_flight_.empty()) {
    Pause(Until::kInterrupted);
    RETURN_IF_ERROR(Interrupted());
    RETURN_IF_ERROR(CheckAsyncError());
    RETURN_IF_ERROR(PollCompletions());
  }
  progress_timeout_ = options_.timeout;
  return absl::OkStatus();
}

absl::Status NcclCommThread::Serve() {
  for (;;) {
    Batch batch;
    {
      absl::MutexLock lock(&mutex_);
      if (!failure_.ok()) return failure_;
      if (closing_) return absl::OkStatus();  // an unfinished operation would have set failure_
      if (!queue_.empty()) {
        batch = std::move(queue_.front());
        queue_.pop_front();
      }
    }
    if (!batch.empty()) RETURN_IF_ERROR(Launch(std::move(batch)));
    RETURN_IF_ERROR(CheckAsyncError());
    RETURN_IF_ERROR(PollCompletions());
    if (in_flight_.empty()) RETURN_IF_ERROR(DeregisterReleased());
    Pause(Until::kWork);
  }
}

// Finalizes the communicators: peers may still wait for data that this rank has sent.
absl::Status NcclCommThread::Finalize() {
  last_progress_ = SteadyNow();
  progress_timeout_ = kFinalizeTime;
  RETURN_IF_ERROR(registrations_.DeregisterAll());
  for (const NcclLevel level : kPartsFirst) {
    NcclComm& comm = group(level).comm;
    if (comm == nullptr) continue;
    RETURN_IF_ERROR(Settle(library_->finalize(comm), "ncclCommFinalize", level));
    library_->destroy(comm);
    comm = nullptr;
  }
  return absl::OkStatus();
}

void NcclCommThread::Leave(absl::Status status) {
  const SteadyTime seen = FailureTime();
  const bool aborts = std::any_of(groups_.begin(), groups_.end(), [](const NcclGroup& group) {
    return group.comm != nullptr;  // not finalized
  });
  const auto log = [this, &seen, logs = aborts || !status.ok()](absl::string_view phase) {
    LOG_IF(INFO, logs) << options_.name << ": leaving NCCL: " << phase << " after "
                       << absl::FormatDuration(SteadyNow() - seen);
  };
  LOG_IF(INFO, !status.ok()) << options_.name << ": leaving NCCL: " << status.message();
  if (!status.ok()) SetFlag();
  bool aborted = false;
  for (const NcclLevel level : kPartsFirst) {
    NcclComm& comm = group(level).comm;
    if (comm == nullptr) continue;
    if (!aborted) log("abort begun");
    library_->abort(comm);  // its result is ignored: nothing can be done about an error
    comm = nullptr;
    aborted = true;
  }
  if (aborted) {
    log("abort done");
    Drain();
    log("kernels ended");
  }
  registrations_.Forget();
  const absl::Status interrupted = Interrupted();
  if (!status.ok() && interrupted.ok() && !PeerRankOf(status).has_value()) {
    status = IdentifyFailedPeer(options_, Annotate(status, options_.name));
    log("failed peer asked for");
  }
  absl::MutexLock lock(&mutex_);
  KeepFailure(status);
  for (const std::shared_ptr<Task>& task : unfinished_) {
    task->status = failure_;
    task->begun = true;
    task->done = true;
  }
  unfinished_.clear();
  pending_p2p_.clear();
  queue_.clear();
  released_.clear();
  left_ = true;
  have_left_.SignalAll();
}

// Waits for the kernels that the abort terminates: until they end they may access the callers'
// memory.
void NcclCommThread::Drain() {
  const Deadline deadline(kDrainTime);
  const absl::StatusOr<kernels::DeviceStream::Mark> end = stream_->Record();
  while (end.ok() && !deadline.passed()) {
    const absl::StatusOr<bool> reached = stream_->Reached(*end);
    if (!reached.ok() || *reached) return;
    absl::SleepFor(kLongestPause);
  }
}

absl::Status NcclCommThread::Launch(Batch batch) {
  if (in_flight_.empty()) last_progress_ = SteadyNow();
  if (batch.front()->call != nullptr) return Call(batch.front());
  for (const std::shared_ptr<Task>& task : batch) {
    RETURN_IF_ERROR(stream_->AwaitCompute(task->after));
    Operation& o = task->operation;
    if (o.kind == Operation::Kind::kAllToAll && o.send == o.recv && o.count > 0) {
      // In place, received segments would overwrite segments that are still to be sent.
      const size_t bytes = o.bytes() * options_.size;
      ASSIGN_OR_RETURN(void* const copy, Scratch(bytes));
      RETURN_IF_ERROR(stream_->Copy(copy, o.send, bytes));
      o.send = copy;
    }
  }
  std::vector<Operation> operations;
  for (const std::shared_ptr<Task>& task : batch) operations.push_back(task->operation);
  const Operation& first = operations.front();
  if (first.kind == Operation::Kind::kAllReduce && options_.levels_of > 0) {
    const NcclGroup& local = group(NcclLevel::kLocal);
    for (const NcclStage& stage : HierarchicalStages(first, {local.rank, local.size})) {
      RETURN_IF_ERROR(CallOn(stage.level, {stage.operation}, NameOf(batch)));
    }
  } else {
    RETURN_IF_ERROR(CallOn(NcclLevel::kWorld, operations, NameOf(batch)));
  }
  // Only after Settle is the work that the call began in the stream.
  ASSIGN_OR_RETURN(const kernels::DeviceStream::Mark end, stream_->Record());
  // All tasks of a batch agree on this.
  const bool captured = batch.front()->captured;
  {
    absl::MutexLock lock(&mutex_);
    for (const std::shared_ptr<Task>& task : batch) {
      task->end = end;
      task->queued = true;
      task->done = captured;
      if (captured) unfinished_.erase(task);
    }
  }
  if (!captured) in_flight_.push_back({end, std::move(batch)});
  return absl::OkStatus();
}

absl::Status NcclCommThread::Call(const std::shared_ptr<Task>& task) {
  RETURN_IF_ERROR(task->call());
  absl::MutexLock lock(&mutex_);
  task->done = true;
  unfinished_.erase(task);
  return absl::OkStatus();
}

absl::Status NcclCommThread::MakeBlock(size_t size_bytes,
                                       absl::StatusOr<std::shared_ptr<NcclBlock>>& block) {
  block = NcclBlock::Make(library_, stream_, size_bytes);
  // The caller receives the error; the communicator stays usable.
  if (!block.ok()) return absl::OkStatus();
  std::vector<NcclComm> comms;
  for (const NcclGroup& group : groups_) {
    if (group.comm != nullptr) comms.push_back(group.comm);
  }
  RETURN_IF_ERROR(registrations_.Register(*block, comms));
  if (std::exchange(logged_memory_kind_, true)) return absl::OkStatus();
  const NcclMemoryKind kind = NcclMemoryKindOf(*library_);
  const bool known = kind == NcclMemoryKind::kPlain || registrations_.Knows(**block);
  LOG(INFO) << options_.name << ": NCCL " << library_->VersionText() << ", " << Describe(kind)
            << (known ? "" : ", which NCCL does not use between these GPUs");
  return absl::OkStatus();
}

absl::Status NcclCommThread::DeregisterReleased() {
  std::vector<std::shared_ptr<NcclBlock>> released;
  {
    absl::MutexLock lock(&mutex_);
    if (!queue_.empty()) return absl::OkStatus();
    released.swap(released_);
  }
  if (!released.empty()) last_progress_ = SteadyNow();
  for (const auto& block : released) RETURN_IF_ERROR(registrations_.Deregister(*block));
  return absl::OkStatus();
}

absl::Status NcclCommThread::Split(NcclConfig config) {
  const uint32_t on_node = options_.levels_of;
  NcclGroup& local = group(NcclLevel::kLocal);
  NcclGroup& cross = group(NcclLevel::kCross);
  local.rank = options_.rank % on_node;
  local.size = on_node;
  cross.rank = options_.rank / on_node;
  cross.size = options_.size / on_node;
  // Ranks of one color form a communicator, ordered by key.
  const auto split = [this, &config](NcclLevel level, uint32_t color) -> absl::Status {
    NcclGroup& part = group(level);
    const NcclResult begun = library_->split(group(NcclLevel::kWorld).comm, static_cast<int>(color),
                                             static_cast<int>(part.rank), &part.comm, &config);
    // NCCL sets the child communicator when the parent has settled; the child then has its own
    // asynchronous state.
    RETURN_IF_ERROR(Settle(begun, "ncclCommSplit"));
    return Settle(kNcclInProgress, "ncclCommSplit", level);
  };
  RETURN_IF_ERROR(split(NcclLevel::kLocal, cross.rank));
  RETURN_IF_ERROR(split(NcclLevel::kCross, local.rank));
  // First collectives on the child communicators, before the parent's, in the same stream.
  RETURN_IF_ERROR(CallOn(NcclLevel::kLocal, {Operation()}, "the first barrier within nodes"));
  return CallOn(NcclLevel::kCross, {Operation()}, "the first barrier between nodes");
}

absl::Status NcclCommThread::CallOn(NcclLevel level, absl::Span<const Operation> operations,
                                    absl::string_view what) {
  return Settle(CallNccl(*library_, group(level), operations), what, level);
}

absl::Status NcclCommThread::Settle(NcclResult code, absl::string_view what, NcclLevel level) {
  return SettleOn(code, what, group(level).comm);
}

absl::Status NcclCommThread::SettleOn(NcclResult code, absl::string_view what, NcclComm comm) {
  // ncclCommWindowRegister of NCCL 2.28 returns ncclSuccess while the communicator is still busy.
  if (code == kNcclSuccess) code = AsyncError(comm);
  while (code == kNcclInProgress) {
    RETURN_IF_ERROR(Interrupted());
    RETURN_IF_ERROR(PollCompletions());
    if (SteadyNow() - last_progress_ > progress_timeout_) return TimeOut(what);
    Pause(Until::kInterrupted);
    code = AsyncError(comm);
  }
  return library_->StatusOf(code, what, comm);
}

NcclResult NcclCommThread::AsyncError(NcclComm comm) const {
  NcclResult state = kNcclSuccess;
  const NcclResult asked = library_->async_error(comm, &state);
  return asked != kNcclSuccess ? asked : state;
}

absl::Status NcclCommThread::CheckAsyncError() {
  for (const NcclGroup& group : groups_) {
    if (group.comm == nullptr) continue;
    RETURN_IF_ERROR(library_->StatusOf(AsyncError(group.comm), "asynchronous error", group.comm));
  }
  return absl::OkStatus();
}

absl::Status NcclCommThread::PollCompletions() {
  while (!in_flight_.empty()) {
    ASSIGN_OR_RETURN(const bool reached, stream_->Reached(in_flight_.front().end));
    if (!reached) {
      if (SteadyNow() - last_progress_ <= progress_timeout_) return absl::OkStatus();
      return TimeOut(NameOf(in_flight_.front().batch));
    }
    last_progress_ = SteadyNow();
    absl::MutexLock lock(&mutex_);
    for (const std::shared_ptr<Task>& task : in_flight_.front().batch) {
      task->done = true;
      unfinished_.erase(task);
    }
    in_flight_.pop_front();
  }
  return absl::OkStatus();
}

void NcclCommThread::Pause(Until until) {
  absl::MutexLock lock(&mutex_);
  const bool settling = until == Until::kInterrupted;
  const bool idle = !settling && in_flight_.empty();
  const bool roused = !failure_.ok() || (!settling && (closing_ || !queue_.empty())) ||
                      (idle && !released_.empty());
  if (roused) return;
  work_.WaitFor(&mutex_, idle ? kIdlePause
                              : std::clamp((SteadyNow() - last_progress_) / 16, kShortestPause,
                                           kLongestPause));
}

absl::Status NcclCommThread::TimeOut(absl::string_view what) const {
  return absl::DeadlineExceededError(absl::StrCat("NCCL: ", what, " made no progress within ",
                                                  absl::FormatDuration(progress_timeout_)));
}

// Only grows: a previous buffer may still be read, and freeing it would synchronize with the
// device.
absl::StatusOr<void*> NcclCommThread::Scratch(size_t bytes) {
  if (bytes > scratch_bytes_) {
    ASSIGN_OR_RETURN(void* const grown, stream_->Allocate(bytes));
    scratch_.push_back(grown);
    scratch_bytes_ = bytes;
  }
  return scratch_.back();
}

}  // namespace muster::collectives
