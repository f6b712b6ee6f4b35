#include "trainer/precision/loss_scale.h"

#include <algorithm>

#include "kernels/update_rules.h"

namespace muster::train {

kernels::LossScaleRules LossScaleRulesOf(const v1::LossScaleSpec& spec) {
  return {.fixed = spec.fixed(),
          .backoff_factor = spec.backoff_factor(),
          .growth_factor = spec.growth_factor(),
          .growth_interval = spec.growth_interval()};
}

LossScaleState InitialLossScale(const v1::LossScaleSpec& spec) {
  return RestoredLossScale(spec, {.scale = spec.initial()});
}

LossScaleState RestoredLossScale(const v1::LossScaleSpec& spec, const LossScaleState& state) {
  LossScaleState restored = state;
  if (spec.fixed()) restored.scale = spec.initial();
  restored.scale =
      std::clamp(restored.scale, kernels::kSmallestLossScale, kernels::kLargestLossScale);
  return restored;
}

}  // namespace muster::train
