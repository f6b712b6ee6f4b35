#include "worker/collectives/queued_communicator.h"

#include <cstdlib>
#include <limits>
#include <new>

#include "absl/strings/str_cat.h"

namespace muster::collectives {
namespace {

constexpr size_t kCacheLineBytes = 64;
constexpr size_t kAddressableBytes = size_t{1} << 47;  // by a process

class HeapAllocation final : public Allocation {
 public:
  HeapAllocation(void* data, size_t size_bytes) : data_(data), size_bytes_(size_bytes) {}
  ~HeapAllocation() override { std::free(data_); }
  HeapAllocation(const HeapAllocation&) = delete;
  HeapAllocation& operator=(const HeapAllocation&) = delete;

  void* data() override { return data_; }
  size_t size_bytes() const override { return size_bytes_; }

 private:
  void* const data_;
  const size_t size_bytes_;
};

class FinishedWork final : public Work {
 public:
  explicit FinishedWork(absl::Status status) : status_(std::move(status)) {}
  absl::Status Wait() override { return status_; }
  bool Done() const override { return true; }

 private:
  const absl::Status status_;
};

Operation MakeOperation(Operation::Kind kind, const void* send, void* recv, size_t count,
                        DataType type, ReduceOp op = ReduceOp::kSum, uint32_t root = 0) {
  Operation operation;
  operation.kind = kind;
  operation.send = send;
  operation.recv = recv;
  operation.count = count;
  operation.type = type;
  operation.op = op;
  operation.root = root;
  return operation;
}

}  // namespace

std::shared_ptr<Work> DoneWork(absl::Status status) {
  return std::make_shared<FinishedWork>(std::move(status));
}

QueuedCommunicator::QueuedCommunicator(std::string name, uint32_t rank,
                                       std::vector<uint32_t> members)
    : name_(std::move(name)), rank_(rank), members_(std::move(members)) {}

QueuedCommunicator::~QueuedCommunicator() = default;

std::shared_ptr<Work> QueuedCommunicator::AllReduce(const void* send, void* recv, size_t count,
                                                    DataType type, ReduceOp op) {
  return Issue(MakeOperation(Operation::Kind::kAllReduce, send, recv, count, type, op));
}

std::shared_ptr<Work> QueuedCommunicator::ReduceScatter(const void* send, void* recv,
                                                        size_t recv_count, DataType type,
                                                        ReduceOp op) {
  return Issue(MakeOperation(Operation::Kind::kReduceScatter, send, recv, recv_count, type, op));
}

std::shared_ptr<Work> QueuedCommunicator::AllGather(const void* send, void* recv, size_t send_count,
                                                    DataType type) {
  return Issue(MakeOperation(Operation::Kind::kAllGather, send, recv, send_count, type));
}

std::shared_ptr<Work> QueuedCommunicator::Broadcast(void* data, size_t count, DataType type,
                                                    uint32_t root) {
  return Issue(
      MakeOperation(Operation::Kind::kBroadcast, data, data, count, type, ReduceOp::kSum, root));
}

std::shared_ptr<Work> QueuedCommunicator::Reduce(const void* send, void* recv, size_t count,
                                                 DataType type, ReduceOp op, uint32_t root) {
  return Issue(MakeOperation(Operation::Kind::kReduce, send, recv, count, type, op, root));
}

std::shared_ptr<Work> QueuedCommunicator::Gather(const void* send, void* recv, size_t send_count,
                                                 DataType type, uint32_t root) {
  return Issue(
      MakeOperation(Operation::Kind::kGather, send, recv, send_count, type, ReduceOp::kSum, root));
}

std::shared_ptr<Work> QueuedCommunicator::Scatter(const void* send, void* recv, size_t recv_count,
                                                  DataType type, uint32_t root) {
  return Issue(
      MakeOperation(Operation::Kind::kScatter, send, recv, recv_count, type, ReduceOp::kSum, root));
}

std::shared_ptr<Work> QueuedCommunicator::AllToAll(const void* send, void* recv, size_t count,
                                                   DataType type) {
  return Issue(MakeOperation(Operation::Kind::kAllToAll, send, recv, count, type));
}

std::shared_ptr<Work> QueuedCommunicator::Send(const void* data, size_t count, DataType type,
                                               uint32_t peer) {
  return Issue(
      MakeOperation(Operation::Kind::kSend, data, nullptr, count, type, ReduceOp::kSum, peer));
}

std::shared_ptr<Work> QueuedCommunicator::Recv(void* data, size_t count, DataType type,
                                               uint32_t peer) {
  return Issue(
      MakeOperation(Operation::Kind::kReceive, nullptr, data, count, type, ReduceOp::kSum, peer));
}

std::shared_ptr<Work> QueuedCommunicator::Barrier() { return Issue(Operation()); }

absl::StatusOr<std::unique_ptr<Allocation>> QueuedCommunicator::Allocate(size_t size_bytes) {
  if (size_bytes >= kAddressableBytes) {
    return absl::ResourceExhaustedError(absl::StrCat("no memory for ", size_bytes, " bytes"));
  }
  const size_t rounded = (size_bytes / kCacheLineBytes + 1) * kCacheLineBytes;
  void* data = std::aligned_alloc(kCacheLineBytes, rounded);
  if (data == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat("no memory for ", size_bytes, " bytes"));
  }
  return {std::make_unique<HeapAllocation>(data, size_bytes)};
}

void QueuedCommunicator::Abort(const absl::Status& reason) {
  Fail(reason.ok() ? absl::AbortedError("aborted") : reason).IgnoreError();
}

absl::Status QueuedCommunicator::Fail(const absl::Status& status) {
  {
    absl::MutexLock lock(&mutex_);
    if (!failure_.ok()) return failure_;
    failure_ = status;
    failed_.store(true, std::memory_order_release);
    // A communicator that is being destroyed has nobody left to wake.
    if (closed_) return failure_;
  }
  Interrupt(status);
  return status;
}

absl::Status QueuedCommunicator::failure() const {
  absl::MutexLock lock(&mutex_);
  return failure_;
}

void QueuedCommunicator::Close() {
  std::map<std::pair<Operation::Kind, uint32_t>, std::shared_ptr<Lane>> lanes;
  bool idle = true;
  {
    absl::MutexLock lock(&mutex_);
    lanes.swap(lanes_);
    for (const auto& lane : lanes) idle = idle && lane.second->Idle();
  }
  if (!idle) Fail(absl::AbortedError("the communicator is closed")).IgnoreError();
  {
    absl::MutexLock lock(&mutex_);
    closed_ = true;
  }
  for (const auto& lane : lanes) lane.second->Stop();
}

absl::Status QueuedCommunicator::Check(const Operation& operation) const {
  if (operation.root >= size()) {
    return absl::InvalidArgumentError(absl::StrCat("there is no rank ", operation.root,
                                                   " in a group of ", size(), " (", name_, ")"));
  }
  if (operation.point_to_point() && operation.root == rank_) {
    return absl::InvalidArgumentError("a rank cannot send to itself");
  }
  if (operation.count > std::numeric_limits<size_t>::max() / 16 / size()) {
    return absl::InvalidArgumentError(absl::StrCat(operation.count, " elements are too many"));
  }
  return absl::OkStatus();
}

std::shared_ptr<Work> QueuedCommunicator::Issue(const Operation& operation) {
  if (absl::Status status = Check(operation); !status.ok()) {
    // The peers wait for this call, and it will never come.
    return DoneWork(Fail(status));
  }
  auto run = [this, operation] {
    if (failed()) return failure();
    const absl::Status status = Execute(operation);
    return status.ok() ? status : Fail(status);
  };
  absl::MutexLock lock(&mutex_);
  if (!failure_.ok()) return DoneWork(failure_);
  if (closed_) return DoneWork(absl::AbortedError("the communicator is closed"));
  const std::pair<Operation::Kind, uint32_t> key =
      operation.point_to_point() ? std::make_pair(operation.kind, operation.root)
                                 : std::make_pair(Operation::Kind::kBarrier, 0u);
  std::shared_ptr<Lane>& lane = lanes_[key];
  if (lane == nullptr) lane = Lane::Start(name_);
  return lane->Issue(std::move(run));
}

}  // namespace muster::collectives
