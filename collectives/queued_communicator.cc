#include "collectives/queued_communicator.h"

#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"

namespace muster::collectives {
namespace {

constexpr size_t kCacheLineBytes = 64;
constexpr size_t kAddressableBytes = size_t{1} << 47;  // limit of a process's address space

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

}  // namespace

QueuedCommunicator::QueuedCommunicator(std::string name, uint32_t rank,
                                       std::vector<uint32_t> members)
    : OperationCommunicator(std::move(name), rank, std::move(members)) {}

QueuedCommunicator::~QueuedCommunicator() = default;

absl::StatusOr<std::unique_ptr<Allocation>> QueuedCommunicator::Allocate(size_t size_bytes) {
  if (size_bytes >= kAddressableBytes) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot allocate ", size_bytes, " bytes"));
  }
  const size_t rounded = (size_bytes / kCacheLineBytes + 1) * kCacheLineBytes;
  void* data = std::aligned_alloc(kCacheLineBytes, rounded);
  if (data == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot allocate ", size_bytes, " bytes"));
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
    // A communicator that is being destroyed has no waiters to wake.
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

std::shared_ptr<Work> QueuedCommunicator::Issue(const Operation& operation) {
  if (absl::Status status = Check(operation); !status.ok()) {
    // Fail the communicator: the peers would wait for a call that never comes.
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
  if (lane == nullptr) lane = Lane::Start(name());
  return lane->Issue(std::move(run));
}

}  // namespace muster::collectives
