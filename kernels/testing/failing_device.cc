#include "kernels/testing/failing_device.h"

#include <type_traits>
#include <utility>

#include "kernels/testing/capturing_device.h"
#include "kernels/testing/kernel_members.h"

namespace muster::kernels {
namespace {

bool Fails(DeviceCall call) { return FailingDevice::Get().Fails(call); }

// Calls the capturing device's kernel at `member`, unless the call fails.
template <typename Function>
struct Failing;

template <typename... Arguments>
struct Failing<void(Arguments...)> {
  template <auto kMember>
  static void Call(Arguments... arguments) {
    if (Fails(DeviceCall::kKernel)) return;
    (CapturingDevice().kernels().*kMember)(std::forward<Arguments>(arguments)...);
  }
};

KernelTable MakeTable() {
  KernelTable table = CapturingDevice().kernels();
#define MUSTER_FAIL(member) \
  table.member =            \
      &Failing<std::remove_pointer_t<decltype(table.member)>>::Call<&KernelTable::member>;
  MUSTER_KERNEL_MEMBERS(MUSTER_FAIL)
#undef MUSTER_FAIL
  return table;
}

class FailingConvolution final : public Convolution {
 public:
  explicit FailingConvolution(std::unique_ptr<Convolution> inner) : inner_(std::move(inner)) {}

  int64_t weights_elements() const override { return inner_->weights_elements(); }
  std::string weights_layout() const override { return inner_->weights_layout(); }
  DataType weights_type() const override { return inner_->weights_type(); }
  DataType dweights_type() const override { return inner_->dweights_type(); }
  std::string description() const override { return inner_->description(); }
  size_t workspace_bytes() const override { return inner_->workspace_bytes(); }
  void ImportWeights(const float* canonical, float* weights) const override {
    inner_->ImportWeights(canonical, weights);
  }
  void ExportWeights(const float* weights, float* canonical) const override {
    inner_->ExportWeights(weights, canonical);
  }
  void Forward(int64_t samples, const void* x, const void* weights, const Epilogue& epilogue,
               void* y, void* workspace) override {
    if (Fails(DeviceCall::kConvolution)) return;
    inner_->Forward(samples, x, weights, epilogue, y, workspace);
  }
  void BackwardData(int64_t samples, const void* dy, const void* weights, void* dx,
                    void* workspace) override {
    if (Fails(DeviceCall::kConvolution)) return;
    inner_->BackwardData(samples, dy, weights, dx, workspace);
  }
  void BackwardWeights(int64_t samples, const void* x, const void* dy, void* dweights,
                       float* dbias, void* workspace) override {
    if (Fails(DeviceCall::kConvolution)) return;
    inner_->BackwardWeights(samples, x, dy, dweights, dbias, workspace);
  }

 private:
  const std::unique_ptr<Convolution> inner_;
};

class FailingEvent final : public DeviceEvent {
 public:
  explicit FailingEvent(std::unique_ptr<DeviceEvent> inner) : inner_(std::move(inner)) {}

  void Record() override {
    if (!Fails(DeviceCall::kRecordEvent)) inner_->Record();
  }
  bool Done() override { return inner_->Done(); }
  absl::Status Wait() override {
    if (Fails(DeviceCall::kAwaitEvent)) return FailingDevice::Get().failure();
    return inner_->Wait();
  }

 private:
  const std::unique_ptr<DeviceEvent> inner_;
};

class FailingGraph final : public DeviceGraph {
 public:
  explicit FailingGraph(std::unique_ptr<DeviceGraph> inner) : inner_(std::move(inner)) {}
  void Launch() override {
    if (!Fails(DeviceCall::kLaunchGraph)) inner_->Launch();
  }

 private:
  const std::unique_ptr<DeviceGraph> inner_;
};

bool IsReportedToCaller(DeviceCall call) {
  return call == DeviceCall::kAllocate || call == DeviceCall::kAllocateHost ||
         call == DeviceCall::kStartCapture || call == DeviceCall::kFinishCapture;
}

}  // namespace

FailingDevice& FailingDevice::Get() {
  static FailingDevice& device = *new FailingDevice;
  return device;
}

FailingDevice::FailingDevice() : inner_(CapturingDevice()), kernels_(MakeTable()) {}

void FailingDevice::FailAt(DeviceCall call, int nth, Reported reported) {
  nth_ = 0;  // no call fails until all members are set
  for (std::atomic<int>& count : counts_) count = 0;
  failed_ = false;
  late_ = reported == Reported::kLate;
  failing_call_ = call;
  nth_ = nth;
}

bool FailingDevice::Fails(DeviceCall call) {
  const int count = ++counts_[static_cast<size_t>(call)];
  if (call != failing_call_ || count != nth_) return false;
  failed_ = true;
  return true;
}

absl::Status FailingDevice::failure() const {
  return absl::InternalError("failing: an injected error");
}

absl::Status FailingDevice::error() {
  if (!failed_ || IsReportedToCaller(failing_call_)) return absl::OkStatus();
  if (late_.exchange(false)) return absl::OkStatus();
  return failure();
}

absl::Status FailingDevice::Synchronize() {
  const absl::Status status = inner_.Synchronize();
  if (!status.ok()) return status;
  late_ = false;
  return error();
}

absl::StatusOr<std::unique_ptr<Convolution>> FailingDevice::MakeConvolution(
    const ConvolutionShape& shape, const ConvolutionOptions& options) {
  auto made = inner_.MakeConvolution(shape, options);
  if (!made.ok()) return made.status();
  return std::make_unique<FailingConvolution>(*std::move(made));
}

void FailingDevice::CopyToDevice(void* to, const void* host, size_t bytes) {
  if (!Fails(DeviceCall::kCopyToDevice)) inner_.CopyToDevice(to, host, bytes);
}
void FailingDevice::CopyToHost(void* host, const void* from, size_t bytes) {
  if (!Fails(DeviceCall::kCopyToHost)) inner_.CopyToHost(host, from, bytes);
}
void FailingDevice::Copy(void* to, const void* from, size_t bytes) {
  if (!Fails(DeviceCall::kCopy)) inner_.Copy(to, from, bytes);
}
void FailingDevice::Zero(void* to, size_t bytes) {
  if (!Fails(DeviceCall::kZero)) inner_.Zero(to, bytes);
}

std::unique_ptr<DeviceEvent> FailingDevice::MakeEvent() {
  return std::make_unique<FailingEvent>(inner_.MakeEvent());
}

absl::Status FailingDevice::StartCapture() {
  if (Fails(DeviceCall::kStartCapture)) return failure();
  return inner_.StartCapture();
}

absl::StatusOr<std::unique_ptr<DeviceGraph>> FailingDevice::FinishCapture() {
  auto graph = inner_.FinishCapture();
  if (Fails(DeviceCall::kFinishCapture)) return failure();
  if (!graph.ok()) return graph.status();
  return std::make_unique<FailingGraph>(*std::move(graph));
}

absl::StatusOr<void*> FailingDevice::AllocateBytes(size_t bytes) {
  if (Fails(DeviceCall::kAllocate)) return absl::ResourceExhaustedError("injected");
  absl::StatusOr<DeviceMemory> made = inner_.Allocate(bytes);
  if (!made.ok()) return made.status();
  void* const data = made->data();
  const std::lock_guard<std::mutex> lock(mutex_);
  memory_[data] = *std::move(made);
  return data;
}

void FailingDevice::Free(void* data, size_t) {
  const std::lock_guard<std::mutex> lock(mutex_);
  memory_.erase(data);
}

absl::StatusOr<void*> FailingDevice::AllocateHostBytes(size_t bytes) {
  if (Fails(DeviceCall::kAllocateHost)) return absl::ResourceExhaustedError("injected");
  absl::StatusOr<HostMemory> made = inner_.AllocateHost(bytes);
  if (!made.ok()) return made.status();
  void* const data = made->data();
  const std::lock_guard<std::mutex> lock(mutex_);
  host_memory_[data] = *std::move(made);
  return data;
}

void FailingDevice::FreeHost(void* data) {
  const std::lock_guard<std::mutex> lock(mutex_);
  host_memory_.erase(data);
}

}  // namespace muster::kernels
