// Softmax cross-entropy loss on the plan's labels.
#ifndef MUSTER_TRAINER_OBJECTIVE_CROSS_ENTROPY_OBJECTIVE_H_
#define MUSTER_TRAINER_OBJECTIVE_CROSS_ENTROPY_OBJECTIVE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "trainer/graph/execution.h"
#include "trainer/objective/objective.h"

namespace muster::train {

// Not collective; Queue never fails.
class CrossEntropyObjective final : public Objective {
 public:
  explicit CrossEntropyObjective(double label_smoothing) : label_smoothing_(label_smoothing) {}

  uint32_t views() const override { return 1; }
  bool supports_graph_capture() const override { return true; }
  // Label smoothing is applied only in training.
  absl::Status Queue(nn::Execution& model, uint32_t samples, uint64_t global_samples, bool training,
                     nn::LossResult* result) override;

 private:
  const double label_smoothing_;
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_OBJECTIVE_CROSS_ENTROPY_OBJECTIVE_H_
