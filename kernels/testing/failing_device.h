// For tests of device errors: the capturing device, one of whose calls fails.
#ifndef MUSTER_KERNELS_TESTING_FAILING_DEVICE_H_
#define MUSTER_KERNELS_TESTING_FAILING_DEVICE_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device.h"

namespace muster::kernels {

enum class DeviceCall {
  kKernel,
  kConvolution,  // a call of a library
  kCopyToDevice,
  kCopyToHost,
  kCopy,
  kZero,
  kAllocate,
  kAllocateHost,
  kRecordEvent,
  kAwaitEvent,
  kStartCapture,
  kFinishCapture,
  kLaunchGraph,
};
inline constexpr size_t kDeviceCalls = 13;

// The failing call has no effect, and later calls work on what that leaves, as after a kernel that
// was not launched. Failed allocations and captures are reported to their caller only. There is one
// instance, so that kernels find it. Threads as for CapturingDevice.
class FailingDevice final : public Device {
 public:
  // Succeeds until FailAt.
  static FailingDevice& Get();

  // When error() reports a failure.
  enum class Reported {
    kAtOnce,  // like a failed launch
    kLate,    // on the second query, like an error of a kernel that has been queued
  };
  // Call number `nth` of this kind from now on fails, counted from 1. Forgets earlier failures.
  void FailAt(DeviceCall call, int nth, Reported reported = Reported::kAtOnce);
  void Succeed() { FailAt(DeviceCall::kKernel, 0); }
  bool failed() const { return failed_; }
  // Number of calls of this kind since FailAt.
  int calls(DeviceCall call) const { return counts_[static_cast<size_t>(call)]; }

  std::string name() const override { return "failing"; }
  bool host_memory() const override { return false; }
  const KernelTable& kernels() const override { return kernels_; }
  absl::StatusOr<std::unique_ptr<Convolution>> MakeConvolution(
      const ConvolutionShape& shape, const ConvolutionOptions& options) override;
  void CopyToDevice(void* to, const void* host, size_t bytes) override;
  void CopyToHost(void* host, const void* from, size_t bytes) override;
  void Copy(void* to, const void* from, size_t bytes) override;
  void Zero(void* to, size_t bytes) override;
  size_t free_bytes() override { return inner_.free_bytes(); }
  std::unique_ptr<DeviceEvent> MakeEvent() override;
  absl::StatusOr<std::unique_ptr<DeviceStream>> MakeStream() override {
    return inner_.MakeStream();
  }
  absl::Status Synchronize() override;
  absl::Status error() override;
  bool supports_graph_capture() const override { return true; }
  absl::Status StartCapture() override;
  absl::StatusOr<std::unique_ptr<DeviceGraph>> FinishCapture() override;

  // Counts a call; returns whether it fails.
  bool Fails(DeviceCall call);
  absl::Status failure() const;

 private:
  FailingDevice();
  absl::StatusOr<void*> AllocateBytes(size_t bytes) override;
  void Free(void* data, size_t bytes) override;
  absl::StatusOr<void*> AllocateHostBytes(size_t bytes) override;
  void FreeHost(void* data) override;

  Device& inner_;
  const KernelTable kernels_;
  std::array<std::atomic<int>, kDeviceCalls> counts_ = {};
  std::atomic<DeviceCall> failing_call_ = DeviceCall::kKernel;
  std::atomic<int> nth_ = 0;
  std::atomic<bool> failed_ = false;
  std::atomic<bool> late_ = false;

  std::mutex mutex_;  // guards the following
  std::unordered_map<void*, DeviceMemory> memory_;
  std::unordered_map<void*, HostMemory> host_memory_;
};

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_TESTING_FAILING_DEVICE_H_
