// The NT-Xent loss on a device; see nt_xent.h.
#ifndef MUSTER_KERNELS_NT_XENT_LOSS_H_
#define MUSTER_KERNELS_NT_XENT_LOSS_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/nt_xent.h"

namespace muster::kernels {

class Device;

// Loss and gradient of normalised embeddings, with the arrays of NtXentForward and NtXentBackward
// in device memory. Used by the device's thread; must not outlive the device.
class NtXentLoss {
 public:
  virtual ~NtXentLoss() = default;
  // What computes the matrix products, for display: "kernels" or "cublaslt".
  virtual std::string description() const = 0;
  // `shape` is at most as large as that of the loss's creation, and has the same width.
  virtual void Forward(const NtXentShape& shape, const float* units, float* logits, float* log_sums,
                       LossResult* result) = 0;
  // Must follow Forward with the same shape.
  virtual void Backward(const NtXentShape& shape, double scale, const double* loss_scale,
                        const float* units, const float* log_sums, float* logits,
                        float* dunits) = 0;
};

// A loss that is computed by the device's kernels alone. RESOURCE_EXHAUSTED.
absl::StatusOr<std::unique_ptr<NtXentLoss>> MakeKernelNtXentLoss(Device& device,
                                                                 const NtXentShape& largest);

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_NT_XENT_LOSS_H_
