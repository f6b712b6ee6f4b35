#include "worker/train/cross_entropy_objective.h"

namespace muster::train {

absl::StatusOr<nn::LossResult> CrossEntropyObjective::Compute(nn::Plan& plan, uint32_t rows,
                                                              uint64_t global_rows, bool training) {
  if (!training) return plan.Loss(rows, /*label_smoothing=*/0, /*scale=*/0);
  return plan.Loss(rows, label_smoothing_, GradientScale(global_rows));
}

}  // namespace muster::train
