#include "kernels/device.h"

#include "kernels/host_memory_device.h"

namespace muster::kernels {
namespace {

class Reference final : public HostMemoryDevice {
 public:
  std::string name() const override { return "reference"; }
  const KernelTable& kernels() const override { return ReferenceKernels(); }
  absl::StatusOr<std::unique_ptr<Convolution>> MakeConvolution(
      const ConvolutionShape& shape, const ConvolutionOptions& options) override {
    return reference::MakeConvolution(shape, options);
  }
};

}  // namespace

Device& ReferenceDevice() {
  static Device& device = *new Reference;
  return device;
}

}  // namespace muster::kernels
