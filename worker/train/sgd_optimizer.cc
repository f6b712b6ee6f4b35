#include "worker/train/sgd_optimizer.h"

#include "kernels/sgd.h"

namespace muster::train {

SgdOptimizer::SgdOptimizer(const v1::OptimizerSpec& spec,
                           absl::Span<const nn::ParameterInfo> parameters)
    : momentum_(static_cast<float>(spec.momentum())),
      weight_decay_(static_cast<float>(spec.weight_decay())) {
  for (const nn::ParameterInfo& parameter : parameters) {
    if (!ranges_.empty() && ranges_.back().decay == parameter.decay &&
        ranges_.back().offset + ranges_.back().count == parameter.offset) {
      ranges_.back().count += parameter.count;
    } else {
      ranges_.push_back({parameter.offset, parameter.count, parameter.decay});
    }
  }
}

void SgdOptimizer::Step(double learning_rate, float* parameters, float* momentum,
                        const float* gradients) const {
  for (const Range& range : ranges_) {
    const kernels::SgdOptions options{static_cast<float>(learning_rate), momentum_,
                                      range.decay ? weight_decay_ : 0.0f};
    kernels::SgdStep(options, parameters + range.offset, momentum + range.offset,
                     gradients + range.offset, range.count);
  }
}

}  // namespace muster::train
