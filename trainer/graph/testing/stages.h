// Trains a model in stages, which one process runs in any order that their data allow, and trains
// the same model as a whole.
#ifndef MUSTER_TRAINER_GRAPH_TESTING_STAGES_H_
#define MUSTER_TRAINER_GRAPH_TESTING_STAGES_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "trainer/graph/graph.h"
#include "trainer/graph/plan.h"

namespace muster::nn {

struct MicroBatch {
  uint64_t step = 0;
  uint64_t first_sample = 0;
  uint32_t samples = 0;
};

// All results of training and of an evaluation afterwards; tensors by name.
struct Trained {
  struct OfMicroBatch {
    double loss_sum = 0;
    std::vector<float> logits;
    std::map<std::string, std::vector<float>> gradients;
  };
  std::vector<OfMicroBatch> micro_batches;
  std::map<std::string, std::vector<float>> buffers;
  std::vector<float> evaluated;  // logits
};

// Runs the micro-batches one after the other, forward and backward.
Trained TrainWhole(const Graph& graph, const CompileOptions& options,
                   const std::vector<MicroBatch>& micro_batches);

// One pass of a stage.
struct StagePass {
  bool forward = true;
  size_t micro_batch = 0;
};
using StageOrder = std::vector<StagePass>;

// Runs the micro-batches one after the other.
StageOrder Sequential(size_t micro_batches);
// GPipe: all forward passes, then all backward passes in the same order.
StageOrder AllForwardFirst(size_t micro_batches);
// 1F1B: `ahead` forward passes, then one backward and one forward in turn.
StageOrder OneForwardOneBackward(size_t micro_batches, size_t ahead);

struct StageUse {
  NodeId begin = 0;
  uint32_t slots = 1;
  StageOrder order;  // micro-batch m is in slot m % slots
};

// A stage runs a pass as soon as its data are available. Activations are taken from the previous
// stage as late as possible. Gradients from the next stage are taken as late as possible for every
// other micro-batch, at the latest before their slot is reused, and as early as possible for the
// others. Fails the test if the stages deadlock, or if a graph or plan cannot be made.
Trained TrainStages(const Graph& graph, const CompileOptions& options,
                    const std::vector<MicroBatch>& micro_batches,
                    const std::vector<StageUse>& uses);

// Compares bitwise, except for the evaluation, where a batch norm is computed differently if it is
// in another stage than its convolution.
void ExpectSame(const Trained& actual, const Trained& expected, double evaluation_tolerance);

}  // namespace muster::nn

#endif  // MUSTER_TRAINER_GRAPH_TESTING_STAGES_H_
