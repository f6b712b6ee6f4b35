// For tests: one graph trained by several ranks, which are threads of the test.
#ifndef MUSTER_TRAINER_OBJECTIVE_DISTRIBUTED_PLAN_H_
#define MUSTER_TRAINER_OBJECTIVE_DISTRIBUTED_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "proto/muster/v1/job.pb.h"
#include "trainer/graph/graph.h"

namespace muster::train {

struct DistributedOptions {
  uint32_t ranks = 1;
  std::string backend = "loopback";  // as in collectives::WorldOptions
  uint32_t ranks_per_node = 0;       // 0: all are on one
  uint32_t samples = 1;              // of every global batch
  uint32_t steps = 1;
  bool synchronize_batch_norm = false;
  v1::ObjectiveSpec objective;
};

struct DistributedStep {
  double loss_sum = 0;  // over all ranks
  double correct = 0;
  std::vector<float> gradients;  // summed over the ranks, parameter by parameter as files have them
  std::vector<float> buffers;    // of the first rank, after the step
};

// Plain gradient descent. Pixels and labels are functions of step and global row alone, and so are
// initial values; samples are shared as the loader shares them. The graph's output width is the
// number of classes. A rank's error is a failed test.
std::vector<DistributedStep> TrainDistributed(const nn::Graph& graph,
                                              const DistributedOptions& options);

// Losses, correct rows, gradients and running statistics, step by step, within `tolerance`.
void ExpectSameSteps(const std::vector<DistributedStep>& actual,
                     const std::vector<DistributedStep>& expected, double tolerance,
                     const std::string& what);

}  // namespace muster::train

#endif  // MUSTER_TRAINER_OBJECTIVE_DISTRIBUTED_PLAN_H_
