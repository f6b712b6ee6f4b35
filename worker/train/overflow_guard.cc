#include "worker/train/overflow_guard.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "common/status.h"

namespace muster::train {

OverflowGuard::OverflowGuard(collectives::Communicator* communicator, kernels::Device& device,
                             float* buffers, size_t buffer_elements)
    : communicator_(communicator),
      device_(device),
      buffers_(buffers),
      buffer_elements_(buffer_elements),
      kept_(device, buffer_elements),
      finite_(device, 1) {}

void OverflowGuard::Begin() {
  device_.Copy(kept_.get(), buffers_, buffer_elements_ * sizeof(float));
}

bool OverflowGuard::Overflowed(double loss, const float* gradients, size_t count) {
  if (!std::isfinite(loss)) return true;
  bool* const result = reinterpret_cast<bool*>(finite_.get());
  bool finite = false;
  device_.kernels().all_finite(kernels::DataType::kFloat32, gradients, count, result);
  device_.CopyToHost(&finite, result, sizeof(finite));
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
  if (any != 0) device_.Copy(buffers_, kept_.get(), buffer_elements_ * sizeof(float));
  return any != 0;
}

}  // namespace muster::train
