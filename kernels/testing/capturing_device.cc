#include "kernels/testing/capturing_device.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <thread>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/capture.h"
#include "kernels/testing/guarded_device.h"
#include "kernels/testing/host_queue.h"
#include "kernels/testing/kernel_members.h"

namespace muster::kernels {
namespace {

using Calls = std::vector<std::function<void()>>;

class Graph final : public DeviceGraph {
 public:
  explicit Graph(Calls calls) : calls_(std::move(calls)) {}
  void Launch() override {
    for (const auto& call : calls_) call();
  }

 private:
  const Calls calls_;
};

// The calls captured so far, and the memory that arguments may point to.
class CallCapture {
 public:
  // Makes the call now, or captures it for each launch. `arguments` are those that may be
  // addresses.
  template <typename Call, typename... Arguments>
  void Do(const Call& call, const Arguments&... arguments) {
    if (!capture_.active()) return call();
    if (!(Reaches(arguments) && ...)) capture_.Refuses("an address in host memory");
    calls_.emplace_back(call);
  }

  Capture& capture() { return capture_; }
  Calls TakeCalls() { return std::exchange(calls_, {}); }

  // Thread-safe, because the owners of streams allocate, too.
  void AddMemory(const void* data, size_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    pieces_[data] = std::max<size_t>(bytes, 1);
  }
  void RemoveMemory(const void* data) {
    const std::lock_guard<std::mutex> lock(mutex_);
    pieces_.erase(data);
  }

 private:
  template <typename T>
  bool Reaches(T* address) const {
    return address == nullptr || Holds(address);
  }
  bool Reaches(const Epilogue& epilogue) const {
    return Reaches(epilogue.scale) && Reaches(epilogue.shift) && Reaches(epilogue.addend);
  }
  bool Reaches(const BatchNormGradient& gradient) const {
    return Reaches(gradient.x) && Reaches(gradient.dy) && Reaches(gradient.dy_addend) &&
           Reaches(gradient.y) && Reaches(gradient.mask) && Reaches(gradient.choice) &&
           Reaches(gradient.scale) && Reaches(gradient.shift) && Reaches(gradient.mean) &&
           Reaches(gradient.inverse_deviation) && Reaches(gradient.shared_pixels) &&
           Reaches(gradient.shortcut);
  }
  bool Reaches(const BatchNormShortcut& shortcut) const {
    return Reaches(shortcut.x) && Reaches(shortcut.scale) && Reaches(shortcut.shift) &&
           Reaches(shortcut.mean) && Reaches(shortcut.inverse_deviation) &&
           Reaches(shortcut.dgamma) && Reaches(shortcut.dbeta) && Reaches(shortcut.dx);
  }
  bool Reaches(const BatchNormAddend& addend) const {
    return Reaches(addend.data) && Reaches(addend.scale) && Reaches(addend.shift);
  }
  bool Reaches(const BatchNormTraining& training) const {
    return Reaches(training.factor) && Reaches(training.active) && Reaches(training.gamma) &&
           Reaches(training.beta) && Reaches(training.mean) &&
           Reaches(training.inverse_deviation) && Reaches(training.scale) &&
           Reaches(training.shift) && Reaches(training.running_mean) &&
           Reaches(training.running_variance);
  }
  bool Reaches(const BatchNormMomentum& momentum) const { return Reaches(momentum.shared_pixels); }
  bool Reaches(const UpdateInputs& inputs) const {
    return Reaches(inputs.step) && Reaches(inputs.losses) && Reaches(inputs.finite) &&
           Reaches(inputs.sum_of_squares) && Reaches(inputs.failed);
  }
  // A value that is no address.
  template <typename T>
  bool Reaches(const T&) const {
    return true;
  }
  bool Holds(const void* address) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto after = pieces_.upper_bound(address);
    if (after == pieces_.begin()) return false;
    const auto& [begin, bytes] = *std::prev(after);
    return static_cast<const char*>(address) < static_cast<const char*>(begin) + bytes;
  }

  Capture capture_;
  Calls calls_;
  mutable std::mutex mutex_;  // guards pieces_
  std::map<const void*, size_t> pieces_;
};

CallCapture& TheCallCapture() {
  static CallCapture& capture = *new CallCapture;
  return capture;
}

// Calls the guarded kernel at `member`, or captures it with copies of its arguments.
template <typename Function>
struct Captured;

template <typename... Arguments>
struct Captured<void(Arguments...)> {
  template <auto kMember>
  static void Call(Arguments... arguments) {
    const auto call = [kept = std::tuple<std::decay_t<Arguments>...>(arguments...)] {
      std::apply(GuardedDevice().kernels().*kMember, kept);
    };
    TheCallCapture().Do(call, arguments...);
  }
};

KernelTable MakeTable() {
  KernelTable table = GuardedDevice().kernels();
#define MUSTER_CAPTURE(member) \
  table.member =               \
      &Captured<std::remove_pointer_t<decltype(table.member)>>::Call<&KernelTable::member>;
  MUSTER_KERNEL_MEMBERS(MUSTER_CAPTURE)
#undef MUSTER_CAPTURE
  return table;
}

class CapturedConvolution final : public Convolution {
 public:
  explicit CapturedConvolution(std::unique_ptr<Convolution> convolution)
      : convolution_(std::move(convolution)) {}

  int64_t weights_elements() const override { return convolution_->weights_elements(); }
  std::string weights_layout() const override { return convolution_->weights_layout(); }
  DataType weights_type() const override { return convolution_->weights_type(); }
  DataType dweights_type() const override { return convolution_->dweights_type(); }
  std::string description() const override { return convolution_->description(); }
  size_t workspace_bytes() const override { return convolution_->workspace_bytes(); }
  void ImportWeights(const float* canonical, float* weights) const override {
    convolution_->ImportWeights(canonical, weights);
  }
  void ExportWeights(const float* weights, float* canonical) const override {
    convolution_->ExportWeights(weights, canonical);
  }

  void Forward(int64_t samples, const void* x, const void* weights, const Epilogue& epilogue,
               void* y, void* workspace) override {
    TheCallCapture().Do(
        [=, this] { convolution_->Forward(samples, x, weights, epilogue, y, workspace); }, x,
        weights, epilogue, y, workspace);
  }
  void BackwardData(int64_t samples, const void* dy, const void* weights, void* dx,
                    void* workspace) override {
    TheCallCapture().Do(
        [=, this] { convolution_->BackwardData(samples, dy, weights, dx, workspace); }, dy, weights,
        dx, workspace);
  }
  void BackwardWeights(int64_t samples, const void* x, const void* dy, void* dweights, float* dbias,
                       void* workspace) override {
    TheCallCapture().Do(
        [=, this] { convolution_->BackwardWeights(samples, x, dy, dweights, dbias, workspace); }, x,
        dy, dweights, dbias, workspace);
  }

 private:
  const std::unique_ptr<Convolution> convolution_;
};

// An event is done when this many others were recorded after it, or after this many queries.
constexpr uint64_t kLate = 3;
constexpr int kAsked = 5;

class LateEvent final : public DeviceEvent {
 public:
  void Record() override {
    recorded_ = ++records_;
    waited_ = false;
    asked_ = 0;
  }
  bool Done() override { return waited_ || records_ >= recorded_ + kLate || ++asked_ >= kAsked; }
  absl::Status Wait() override {
    waited_ = true;
    return absl::OkStatus();
  }

 private:
  static inline uint64_t records_ = 0;  // recorded events in total
  uint64_t recorded_ = 0;
  int asked_ = 0;
  bool waited_ = true;
};

class CapturingStream;

// The streams of this process. A GPU executes all streams while one waits.
class Streams {
 public:
  static Streams& Get() {
    static Streams& streams = *new Streams;
    return streams;
  }
  void Add(CapturingStream* stream) {
    const std::lock_guard<std::mutex> lock(mutex_);
    streams_.insert(stream);
  }
  void Remove(CapturingStream* stream) {
    const std::lock_guard<std::mutex> lock(mutex_);
    streams_.erase(stream);
  }
  // Lets the tasks of all streams make progress.
  void Advance();

 private:
  std::mutex mutex_;
  std::set<CapturingStream*> streams_;  // guarded by mutex_
};

// Tasks make progress when the stream is queried or the device waits for any stream. During
// capture, each task is captured as a call that queues it.
class CapturingStream final : public DeviceStream {
 public:
  explicit CapturingStream(HostMemory flag)
      : flag_memory_(std::move(flag)), flag_(new (flag_memory_.data()) std::atomic<uint32_t>(0)) {
    Take(/*capturing=*/false);
    Streams::Get().Add(this);
  }
  ~CapturingStream() override { Streams::Get().Remove(this); }

  absl::Status Enter() override { return absl::OkStatus(); }
  void* native() override { return queue_.native(); }

  // Compute calls have already finished.
  absl::StatusOr<Mark> RecordComputeEvent() override {
    Take(IsCapturing());
    return 0;
  }
  absl::Status AwaitCompute(Mark) override { return absl::OkStatus(); }

  absl::StatusOr<Mark> Record() override {
    if (!capturing_) return queue_.given();
    // At each launch, the tasks that were queued before are those to wait for.
    auto tasks = std::make_shared<uint64_t>(0);
    TheCallCapture().Do([this, tasks] { *tasks = queue_.given(); });
    captured_marks_.push_back(std::move(tasks));
    return captured_marks_.size() - 1;
  }
  absl::StatusOr<bool> Reached(Mark mark) override { return queue_.Reached(mark); }
  absl::Status MakeComputeWait(Mark mark) override {
    const bool capturing = IsCapturing();
    const auto tasks = capturing ? captured_marks_.at(mark) : std::make_shared<uint64_t>(mark);
    TheCallCapture().Do([=, this] {
      while (!queue_.Reached(*tasks)) {
        Streams::Get().Advance();
        std::this_thread::yield();
      }
    });
    return absl::OkStatus();
  }
  bool IsCapturing() override { return TheCallCapture().capture().active(); }
  void Advance() { (void)queue_.Reached(0); }

  absl::Status Copy(void* to, const void* from, size_t bytes) override {
    queue_.Enqueue([=] {
      std::memcpy(to, from, bytes);
      return true;
    });
    return absl::OkStatus();
  }
  absl::StatusOr<void*> Allocate(size_t bytes) override {
    absl::StatusOr<DeviceMemory> allocated = CapturingDevice().Allocate(bytes);
    if (!allocated.ok()) return allocated.status();
    void* const data = allocated->data();
    memory_[data] = *std::move(allocated);
    return data;
  }
  void Free(void* data) override { memory_.erase(data); }

  std::atomic<uint32_t>& flag() override { return *flag_; }

 private:
  // Sets how subsequent tasks are handled.
  void Take(bool capturing) {
    capturing_ = capturing;
    queue_.Divert([this, capturing](HostQueue::Task task) {
      const auto opened = [task = std::move(task)] {
        const GuardedAccess access;
        return task();
      };
      if (!capturing) return queue_.Push(opened);
      TheCallCapture().Do([this, opened] { queue_.Push(opened); });
    });
  }

  const HostMemory flag_memory_;
  std::atomic<uint32_t>* const flag_;
  HostQueue queue_;
  // Changed by the compute thread while no other thread uses the stream.
  std::atomic<bool> capturing_{false};
  std::vector<std::shared_ptr<uint64_t>> captured_marks_;  // by mark
  std::map<void*, DeviceMemory> memory_;
};

void Streams::Advance() {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (CapturingStream* const stream : streams_) stream->Advance();
}

class CapturingDeviceImpl final : public Device {
 public:
  std::string name() const override { return "capturing"; }
  bool host_memory() const override { return false; }
  const KernelTable& kernels() const override { return kernels_; }
  absl::StatusOr<std::unique_ptr<Convolution>> MakeConvolution(
      const ConvolutionShape& shape, const ConvolutionOptions& options) override {
    auto made = GuardedDevice().MakeConvolution(shape, options);
    if (!made.ok()) return made.status();
    return std::make_unique<CapturedConvolution>(*std::move(made));
  }

  void CopyToDevice(void* to, const void* host, size_t bytes) override {
    if (capture().Refuses("a copy from the host")) return;
    GuardedDevice().CopyToDevice(to, host, bytes);
  }
  void CopyToHost(void* host, const void* from, size_t bytes) override {
    if (capture().Refuses("a copy to the host")) return;
    GuardedDevice().CopyToHost(host, from, bytes);
  }
  void Copy(void* to, const void* from, size_t bytes) override {
    TheCallCapture().Do([=] { GuardedDevice().Copy(to, from, bytes); }, to, from);
  }
  void Zero(void* to, size_t bytes) override {
    TheCallCapture().Do([=] { GuardedDevice().Zero(to, bytes); }, to);
  }
  absl::Status Synchronize() override {
    if (capture().Refuses("waiting")) return absl::FailedPreconditionError("capture is active");
    return absl::OkStatus();
  }

  size_t free_bytes() override { return GuardedDevice().free_bytes(); }
  std::unique_ptr<DeviceEvent> MakeEvent() override { return std::make_unique<LateEvent>(); }
  absl::StatusOr<std::unique_ptr<DeviceStream>> MakeStream() override {
    absl::StatusOr<HostMemory> flag = AllocateHost(sizeof(std::atomic<uint32_t>));
    if (!flag.ok()) return flag.status();
    return {std::make_unique<CapturingStream>(*std::move(flag))};
  }

  bool supports_graph_capture() const override { return true; }
  absl::Status StartCapture() override {
    capture().Start();
    return absl::OkStatus();
  }
  absl::StatusOr<std::unique_ptr<DeviceGraph>> FinishCapture() override {
    const absl::Status refused = capture().Finish();
    Calls calls = TheCallCapture().TakeCalls();
    if (!refused.ok()) return refused;
    return std::make_unique<Graph>(std::move(calls));
  }

 private:
  static Capture& capture() { return TheCallCapture().capture(); }
  absl::StatusOr<void*> AllocateBytes(size_t bytes) override {
    if (capture().Refuses("an allocation")) {
      return absl::FailedPreconditionError("capture is active");
    }
    auto allocated = GuardedDevice().Allocate(bytes);
    if (!allocated.ok()) return allocated.status();
    void* const data = allocated->data();
    TheCallCapture().AddMemory(data, bytes);
    const std::lock_guard<std::mutex> lock(mutex_);
    memory_[data] = *std::move(allocated);
    return data;
  }
  void Free(void* data, size_t) override {
    TheCallCapture().RemoveMemory(data);
    const std::lock_guard<std::mutex> lock(mutex_);
    memory_.erase(data);
  }
  absl::StatusOr<void*> AllocateHostBytes(size_t bytes) override {
    auto allocated = Device::AllocateHostBytes(bytes);
    if (allocated.ok()) TheCallCapture().AddMemory(*allocated, bytes);
    return allocated;
  }
  void FreeHost(void* data) override {
    TheCallCapture().RemoveMemory(data);
    Device::FreeHost(data);
  }

  const KernelTable kernels_ = MakeTable();
  std::mutex mutex_;
  std::map<void*, DeviceMemory> memory_;  // guarded by mutex_
};

}  // namespace

Device& CapturingDevice() {
  static Device& device = *new CapturingDeviceImpl;
  return device;
}

}  // namespace muster::kernels
