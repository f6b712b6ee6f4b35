// Stochastic gradient descent over the plan's flat arrays.
#ifndef MUSTER_WORKER_TRAIN_SGD_OPTIMIZER_H_
#define MUSTER_WORKER_TRAIN_SGD_OPTIMIZER_H_

#include <cstddef>
#include <vector>

#include "absl/types/span.h"
#include "proto/muster/v1/job.pb.h"
#include "worker/nn/plan.h"

namespace muster::train {

// Immutable.
class SgdOptimizer {
 public:
  SgdOptimizer(const v1::OptimizerSpec& spec, absl::Span<const nn::ParameterInfo> parameters);
  // Flat arrays in the plan's layout; see kernels/sgd.h.
  void Step(double learning_rate, float* parameters, float* momentum, const float* gradients) const;

 private:
  // Neighbours that are treated alike, so that a step is few kernel calls.
  struct Range {
    size_t offset;
    size_t count;
    bool decay;
  };
  std::vector<Range> ranges_;
  float momentum_;
  float weight_decay_;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_SGD_OPTIMIZER_H_
