#include "kernels/cpu/device.h"

#include "kernels/cpu/convolution/convolution.h"
#include "kernels/cpu/convolution/dense_kernels.h"
#include "kernels/host_memory_device.h"

namespace muster::kernels {
namespace {

class Cpu final : public HostMemoryDevice {
 public:
  explicit Cpu(InstructionSet set) : set_(set) {}

  std::string name() const override { return "cpu"; }
  const KernelTable& kernels() const override { return CpuKernels(set_); }
  bool multiplies(DataType type) const override {
    return type == DataType::kFloat32 ||
           (type == DataType::kBfloat16 && cpu::DenseKernelsOf(set_).bfloat16_dot);
  }
  absl::StatusOr<std::unique_ptr<Convolution>> MakeConvolution(
      const ConvolutionShape& shape, const ConvolutionOptions& options) override {
    return cpu::MakeConvolution(shape, options, set_);
  }

 private:
  const InstructionSet set_;
};

}  // namespace

Device& CpuDevice(InstructionSet set) {
  static Device* const devices[] = {new Cpu(InstructionSet::kPlain), new Cpu(InstructionSet::kAvx2),
                                    new Cpu(InstructionSet::kAvx512),
                                    new Cpu(InstructionSet::kAvx512Bf16)};
  return *devices[static_cast<int>(set)];
}

Device& CpuDevice() {
  static Device& device = CpuDevice(DetectInstructionSet());
  return device;
}

}  // namespace muster::kernels
