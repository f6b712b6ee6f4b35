#include "tests/gpu/ptx/runtime/scheduler.h"

#include <algorithm>
#include <utility>

#include "absl/status/statusor.h"

namespace muster::ptx {
namespace {

constexpr OrderSeed kLate = 0;
constexpr OrderSeed kOthersFirst = 1;

const Completion* FirstPending(const QueuedWork& work) {
  for (const CompletionPtr& one : work.after) {
    if (!one->done) return one.get();
  }
  return nullptr;
}

}  // namespace

size_t Scheduler::Choose(size_t count) {
  if (seed_ == kLate) return count - 1;
  if (seed_ == kOthersFirst) return 0;
  return std::uniform_int_distribution<size_t>(0, count - 1)(random_);
}

Stream* Scheduler::Make(int device) {
  streams_.push_back(std::make_unique<Stream>());
  streams_.back()->device = device;
  return streams_.back().get();
}

Stream* Scheduler::Find(const void* stream) const {
  for (const auto& one : streams_) {
    if (one.get() == stream && !one->destroyed) return one.get();
  }
  return nullptr;
}

void Scheduler::Destroy(Stream* stream) {
  stream->destroyed = true;
  RemoveIfOver(*stream);
}

std::vector<Stream*> Scheduler::StreamsOf(const Capture& capture) const {
  std::vector<Stream*> found;
  for (const auto& stream : streams_) {
    if (stream->capture.get() == &capture) found.push_back(stream.get());
  }
  return found;
}

void Scheduler::RemoveIfOver(Stream& stream) {
  if (!stream.destroyed || !stream.queue.empty()) return;
  streams_.erase(std::find_if(streams_.begin(), streams_.end(),
                              [&](const auto& one) { return one.get() == &stream; }));
}

CompletionPtr Scheduler::Push(Stream& stream, std::shared_ptr<Work> work,
                              std::vector<CompletionPtr> after) {
  for (const auto& other : streams_) {
    if (other->device != stream.device || other->last == nullptr || other.get() == &stream)
      continue;
    const bool synchronizes =
        (stream.is_default && !other->non_blocking) || (other->is_default && !stream.non_blocking);
    if (synchronizes) after.push_back(other->last);
  }
  stream.last = std::make_shared<Completion>(Completion{&stream});
  stream.queue.push_back({std::move(work), std::move(after), stream.last});
  return stream.last;
}

Stream& Scheduler::NextFor(const Completion& target) const {
  const Completion* at = &target;
  while (const Completion* const pending = FirstPending(at->stream->queue.front())) at = pending;
  return *at->stream;
}

bool Scheduler::IsRunnable(const Stream& stream) const {
  return !stream.queue.empty() && FirstPending(stream.queue.front()) == nullptr;
}

Progress Scheduler::RunFirst(Stream& stream) {
  const QueuedWork first = stream.queue.front();
  absl::StatusOr<Progress> progress = Progress::kFinished;
  if (first.work != nullptr) {
    const absl::Status injected = hooks_.before_work(stream.device);
    progress = injected.ok() ? first.work->Step() : injected;
  }
  if (!progress.ok()) {
    const int device = stream.device;
    hooks_.on_fault(device, progress.status());
    Discard(device);
    return Progress::kFinished;
  }
  if (*progress == Progress::kFinished) {
    first.done->done = true;
    first.done->milliseconds = hooks_.clock();
    stream.queue.pop_front();
    RemoveIfOver(stream);
  }
  return *progress;
}

bool Scheduler::Advance(const Completion& target) {
  if (target.done) return false;
  std::vector<Stream*> order;  // in which streams are tried, until one advances
  Stream& next = NextFor(target);
  for (const auto& stream : streams_) {
    if (IsRunnable(*stream)) order.push_back(stream.get());
  }
  if (seed_ == kLate || seed_ == kOthersFirst) {
    std::stable_partition(order.begin(), order.end(), [&](const Stream* stream) {
      return (stream == &next) == (seed_ == kLate);
    });
  } else {
    std::shuffle(order.begin(), order.end(), random_);
  }
  for (Stream* const stream : order) {
    if (RunFirst(*stream) != Progress::kBlocked) return true;
  }
  return false;
}

std::vector<CompletionPtr> Scheduler::LastOf(int device) const {
  std::vector<CompletionPtr> last;
  for (const auto& stream : streams_) {
    if (stream->device == device && stream->last != nullptr) last.push_back(stream->last);
  }
  return last;
}

void Scheduler::Discard(int device) {
  for (size_t i = streams_.size(); i-- > 0;) {
    Stream& stream = *streams_[i];
    if (stream.device != device) continue;
    for (const QueuedWork& work : stream.queue) work.done->done = true;
    stream.queue.clear();
    RemoveIfOver(stream);
  }
}

}  // namespace muster::ptx
