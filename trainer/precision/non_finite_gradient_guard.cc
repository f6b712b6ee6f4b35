#include "trainer/precision/non_finite_gradient_guard.h"

#include <cstdint>

#include "common/status.h"

namespace muster::train {

NonFiniteGradientGuard::NonFiniteGradientGuard(collectives::Communicator* communicator,
                                               kernels::Device& device, float* buffers,
                                               size_t buffer_elements)
    : communicator_(communicator),
      device_(device),
      buffers_(buffers),
      buffer_elements_(buffer_elements) {}

absl::StatusOr<NonFiniteGradientGuard> NonFiniteGradientGuard::Create(
    collectives::Communicator* communicator, kernels::Device& device, float* buffers,
    size_t buffer_elements) {
  NonFiniteGradientGuard guard(communicator, device, buffers, buffer_elements);
  constexpr char kUse[] = "loss scaling";
  ASSIGN_OR_RETURN(guard.kept_, kernels::DeviceFloats::Create(device, buffer_elements, kUse));
  ASSIGN_OR_RETURN(guard.finite_, kernels::AllocateOn<bool>(device, 1, kUse));
  return guard;
}

void NonFiniteGradientGuard::Begin() {
  device_.Copy(kept_.get(), buffers_, buffer_elements_ * sizeof(float));
}

void NonFiniteGradientGuard::Check(const float* gradients, size_t count) {
  device_.kernels().all_finite(kernels::DataType::kFloat32, gradients, count, finite_.as<bool>());
}

absl::Status NonFiniteGradientGuard::Agree() {
  // The sums should be the same on all ranks. The reduction guards against silent divergence in
  // case only some ranks skip a step.
  if (communicator_->size() == 1) return absl::OkStatus();
  bool finite = false;
  device_.CopyToHost(&finite, finite_.data(), sizeof(finite));
  int32_t all = finite ? 1 : 0;
  RETURN_IF_ERROR(
      communicator_
          ->AllReduce(&all, &all, 1, collectives::DataType::kInt32, collectives::ReduceOp::kMin)
          ->Wait());
  finite = all != 0;
  device_.CopyToDevice(finite_.data(), &finite, sizeof(finite));
  return absl::OkStatus();
}

void NonFiniteGradientGuard::Restore(const kernels::UpdateScalars* scalars) {
  device_.kernels().restore_skipped(scalars, kept_.get(), buffers_, buffer_elements_);
}

}  // namespace muster::train
