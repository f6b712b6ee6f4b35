#include "worker/train/cross_entropy_objective.h"

#include <algorithm>

namespace muster::train {

absl::StatusOr<nn::LossResult> CrossEntropyObjective::Compute(nn::Plan& plan, uint32_t rows,
                                                              uint64_t global_rows, bool training) {
  if (!training) return plan.Loss(rows, /*label_smoothing=*/0, /*scale=*/0);
  const double scale = 1.0 / static_cast<double>(std::max<uint64_t>(1, global_rows));
  return plan.Loss(rows, label_smoothing_, static_cast<float>(scale));
}

}  // namespace muster::train
