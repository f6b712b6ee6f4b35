// Test support: trains a graph on several ranks, which are threads of the test.
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
  std::string backend = "loopback";  // see collectives::WorldOptions
  uint32_t ranks_per_node = 0;       // 0: all ranks on one node
  uint32_t samples = 1;              // samples per global batch
  uint32_t steps = 1;
  bool synchronize_batch_norm = false;
  v1::ObjectiveSpec objective;
};

struct DistributedStep {
  double loss_sum = 0;  // summed over the ranks
  double correct = 0;
  std::vector<float> gradients;  // summed over the ranks, in file layout
  std::vector<float> buffers;    // buffers of the first rank after the step
};

// Trains with plain gradient descent. Initial values, pixels and labels are functions of step and
// global sample only; samples are divided among ranks as by the loader. The graph's output width is
// the number of classes. An error on any rank fails the test.
std::vector<DistributedStep> TrainDistributed(const nn::Graph& graph,
                                              const DistributedOptions& options);

// Compares losses, numbers of correct samples, gradients and running statistics of each step within
// `tolerance`.
void ExpectSameSteps(const std::vector<DistributedStep>& actual,
                     const std::vector<DistributedStep>& expected, double tolerance,
                     const std::string& what);

}  // namespace muster::train

#endif  // MUSTER_TRAINER_OBJECTIVE_DISTRIBUTED_PLAN_H_
