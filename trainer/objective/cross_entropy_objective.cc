#include "trainer/objective/cross_entropy_objective.h"

namespace muster::train {

absl::Status CrossEntropyObjective::Queue(nn::Execution& model, uint32_t samples,
                                          uint64_t global_samples, bool training,
                                          nn::LossResult* result) {
  nn::LossOptions options{.scale = 0};
  if (training) {
    options = {.label_smoothing = label_smoothing_,
               .scale = GradientScale(global_samples),
               .loss_scale = loss_scale()};
  }
  model.QueueLoss(samples, options, result);
  return absl::OkStatus();
}

}  // namespace muster::train
