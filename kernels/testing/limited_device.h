// For tests of exhausted device memory: a CPU device that allows a limited number of allocations.
#ifndef MUSTER_KERNELS_TESTING_LIMITED_DEVICE_H_
#define MUSTER_KERNELS_TESTING_LIMITED_DEVICE_H_

#include <limits>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "kernels/host_memory_device.h"

namespace muster::kernels {

// Does not report its memory as host memory, so that users allocate and copy as for a GPU.
class LimitedDevice final : public HostMemoryDevice {
 public:
  static constexpr int kUnlimited = std::numeric_limits<int>::max();

  explicit LimitedDevice(int allocations = kUnlimited) : left_(allocations) {}

  // Number of allocations until the device is out of memory.
  void set_allocations(int allocations) { left_ = allocations; }

  std::string name() const override { return "limited"; }
  bool host_memory() const override { return false; }
  const KernelTable& kernels() const override { return CpuKernels(); }
  absl::StatusOr<std::unique_ptr<Convolution>> MakeConvolution(
      const ConvolutionShape& shape, const ConvolutionOptions& options) override {
    return CpuDevice().MakeConvolution(shape, options);
  }

 private:
  absl::StatusOr<void*> AllocateBytes(size_t bytes) override;

  int left_;
};

// Calls `create` while `device` allows 0, 1, 2, ... allocations, until it succeeds. Expects it to
// return the device's error before, and returns the number of allocations that it needs. Leaves the
// device unlimited.
int AllocationsNeeded(LimitedDevice& device, absl::FunctionRef<absl::Status()> create);

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_TESTING_LIMITED_DEVICE_H_
