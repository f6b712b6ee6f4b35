#include "worker/train/overflow_guard.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "common/status.h"
#include "kernels/kernel_table.h"

namespace muster::train {

OverflowGuard::OverflowGuard(collectives::Communicator* communicator, float* buffers,
                             size_t buffer_elements)
    : communicator_(communicator),
      buffers_(buffers),
      buffer_elements_(buffer_elements),
      kept_(MakeAlignedFloats(buffer_elements)) {}

void OverflowGuard::Begin() { std::copy_n(buffers_, buffer_elements_, kept_.get()); }

bool OverflowGuard::Overflowed(double loss, const float* gradients, size_t count) {
  bool finite = std::isfinite(loss);
  if (finite) {
    kernels::CpuKernels().all_finite(kernels::DataType::kFloat32, gradients, count, &finite);
  }
  return !finite;
}

absl::StatusOr<bool> OverflowGuard::Agree(bool overflowed) {
  // The sums are the same on all ranks. But ranks of which some skip a step drift apart, and nobody
  // would notice: that is worth a message of four bytes.
  int32_t any = overflowed ? 1 : 0;
  RETURN_IF_ERROR(
      communicator_
          ->AllReduce(&any, &any, 1, collectives::DataType::kInt32, collectives::ReduceOp::kMax)
          ->Wait());
  if (any != 0) std::copy_n(kept_.get(), buffer_elements_, buffers_);
  return any != 0;
}

}  // namespace muster::train
