#include "kernels/device.h"

#include "kernels/host_memory_device.h"

namespace muster::kernels {
namespace {

class Cpu final : public HostMemoryDevice {
 public:
  std::string name() const override { return "cpu"; }
  const KernelTable& kernels() const override { return CpuKernels(); }
  absl::StatusOr<std::unique_ptr<Convolution>> MakeConvolution(
      const ConvolutionShape& shape, const ConvolutionOptions& options) override {
    return cpu::MakeConvolution(shape, options);
  }
};

}  // namespace

Device& CpuDevice() {
  static Device& device = *new Cpu;
  return device;
}

}  // namespace muster::kernels
