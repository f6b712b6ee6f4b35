#include "kernels/nt_xent_loss.h"

#include <cstddef>
#include <utility>

#include "kernels/device.h"

namespace muster::kernels {
namespace {

class KernelNtXentLoss final : public NtXentLoss {
 public:
  KernelNtXentLoss(const KernelTable& kernels, DeviceMemory workspace)
      : kernels_(kernels), workspace_(std::move(workspace)) {}

  std::string description() const override { return "kernels"; }
  void Forward(const NtXentShape& shape, const float* units, float* logits, float* log_sums,
               LossResult* result) override {
    kernels_.nt_xent_forward(shape, units, logits, log_sums, workspace_.as<float>(), result);
  }
  void Backward(const NtXentShape& shape, double scale, const double* loss_scale,
                const float* units, const float* log_sums, float* logits, float* dunits) override {
    kernels_.nt_xent_backward(shape, scale, loss_scale, units, log_sums, logits, dunits);
  }

 private:
  const KernelTable& kernels_;
  const DeviceMemory workspace_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<NtXentLoss>> MakeKernelNtXentLoss(Device& device,
                                                                 const NtXentShape& largest) {
  absl::StatusOr<DeviceMemory> workspace =
      device.Allocate(static_cast<size_t>(largest.workspace_elements()) * sizeof(float));
  if (!workspace.ok()) return workspace.status();
  return std::make_unique<KernelNtXentLoss>(device.kernels(), *std::move(workspace));
}

}  // namespace muster::kernels
