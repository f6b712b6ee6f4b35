#include "kernels/cuda/stream.h"

#include <map>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/status.h"
#include "kernels/out_of_memory.h"

namespace muster::kernels::cuda {
namespace {

absl::Status StatusOf(const char* error) {
  if (error == nullptr) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("CUDA: ", error));
}

class CudaStream final : public DeviceStream {
 public:
  CudaStream(const MusterCudaApi& api, MusterCudaContext* context, const Capture* capture,
             HostMemory flag, void* stream)
      : api_(api),
        context_(context),
        capture_(*capture),
        flag_memory_(std::move(flag)),
        flag_(new (flag_memory_.data()) std::atomic<uint32_t>(0)),
        compute_(api.stream(context)),
        stream_(stream) {}
  ~CudaStream() override {
    (void)api_.use_device(context_);
    free_.clear();
    marks_.clear();
    (void)api_.release_stream(stream_);
  }

  absl::Status Enter() override { return StatusOf(api_.use_device(context_)); }
  void* native() override { return stream_; }

  absl::StatusOr<Mark> RecordComputeEvent() override {
    api_.enter(context_);
    return RecordIn(compute_);
  }
  absl::Status AwaitCompute(Mark mark) override {
    Event event = Find(mark);
    if (event == nullptr) return absl::OkStatus();
    RETURN_IF_ERROR(StatusOf(api_.stream_wait_event(stream_, event.get())));
    absl::MutexLock lock(&mutex_);
    marks_.erase(mark);
    // It may be reused at once: cudaStreamWaitEvent waits for its latest recording so far.
    free_.push_back(std::move(event));
    return absl::OkStatus();
  }

  absl::StatusOr<Mark> Record() override { return RecordIn(stream_); }
  absl::StatusOr<bool> Reached(Mark mark) override {
    absl::MutexLock lock(&mutex_);
    const auto found = marks_.find(mark);
    if (found == marks_.end()) return true;
    int reached = 0;
    RETURN_IF_ERROR(StatusOf(api_.query_stream_event(found->second.get(), &reached)));
    if (reached == 0) return false;
    // Another thread may be about to make a stream wait for it, and then frees it.
    if (found->second.use_count() == 1) free_.push_back(std::move(found->second));
    marks_.erase(found);
    return true;
  }
  absl::Status MakeComputeWait(Mark mark) override {
    api_.enter(context_);
    const Event event = Find(mark);
    if (event == nullptr) return absl::OkStatus();  // already reached
    return StatusOf(api_.stream_wait_event(compute_, event.get()));
  }

  bool IsCapturing() override { return capture_.active(); }

  absl::Status Copy(void* to, const void* from, size_t bytes) override {
    return StatusOf(api_.copy_on_stream(stream_, to, from, bytes));
  }

  absl::StatusOr<void*> Allocate(size_t bytes) override {
    RETURN_IF_ERROR(Enter());
    void* data = nullptr;
    const char* const error = api_.allocate_uninitialized(bytes, &data);
    if (error == nullptr) return data;
    size_t free_bytes = 0;
    (void)api_.free_memory(context_, &free_bytes);
    return OutOfMemoryError("CUDA", "communication buffers", bytes, free_bytes, error);
  }
  void Free(void* data) override {
    (void)api_.use_device(context_);
    api_.release_uninitialized(data);
  }

  std::atomic<uint32_t>& flag() override { return *flag_; }

 private:
  using Event = std::shared_ptr<MusterCudaEvent>;

  // Calls that add to a stream are made without the mutex: they wait while the stream is full of
  // kernels that wait for a lost peer, which the thread that calls Reached has to end.
  absl::StatusOr<Mark> RecordIn(void* stream) {
    ASSIGN_OR_RETURN(Event event, TakeEvent());
    RETURN_IF_ERROR(StatusOf(api_.record_on_stream(stream, event.get())));
    absl::MutexLock lock(&mutex_);
    marks_[++last_] = std::move(event);
    return last_;
  }

  absl::StatusOr<Event> TakeEvent() {
    {
      absl::MutexLock lock(&mutex_);
      if (!free_.empty()) {
        Event event = std::move(free_.back());
        free_.pop_back();
        return event;
      }
    }
    MusterCudaEvent* made = nullptr;
    RETURN_IF_ERROR(StatusOf(api_.make_stream_event(&made)));
    return Event(made, api_.release_stream_event);
  }

  // Null if the mark has been reached.
  Event Find(Mark mark) {
    absl::MutexLock lock(&mutex_);
    const auto found = marks_.find(mark);
    return found == marks_.end() ? nullptr : found->second;
  }

  const MusterCudaApi& api_;
  MusterCudaContext* const context_;
  const Capture& capture_;
  const HostMemory flag_memory_;
  std::atomic<uint32_t>* const flag_;
  void* const compute_;
  void* const stream_;

  absl::Mutex mutex_;
  Mark last_ ABSL_GUARDED_BY(mutex_) = 0;
  // Events of marks that have not been reached. Events of captured marks remain: Reached is not
  // called for them.
  std::map<Mark, Event> marks_ ABSL_GUARDED_BY(mutex_);
  std::vector<Event> free_ ABSL_GUARDED_BY(mutex_);  // for reuse
};

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceStream>> MakeStream(const MusterCudaApi& api,
                                                         MusterCudaContext* context,
                                                         const Capture* capture, HostMemory flag) {
  void* stream = nullptr;
  RETURN_IF_ERROR(StatusOf(api.make_stream(&stream)));
  return {std::make_unique<CudaStream>(api, context, capture, std::move(flag), stream)};
}

}  // namespace muster::kernels::cuda
