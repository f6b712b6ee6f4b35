// A model in stages, which one process computes in any order that their data allow, and the same
// computed whole.
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
  uint64_t first_row = 0;
  uint32_t rows = 0;
};

// All that training and an evaluation afterwards leave, tensors by name.
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

// One after the other, forward and backward.
Trained TrainWhole(const Graph& graph, const CompileOptions& options,
                   const std::vector<MicroBatch>& micro_batches);

// What a stage does, one after the other.
struct StagePass {
  bool forward = true;
  size_t micro_batch = 0;
};
using StageOrder = std::vector<StagePass>;

// Micro-batches one after the other.
StageOrder Sequential(size_t micro_batches);
// All forward, then all backward in the same order.
StageOrder AllForwardFirst(size_t micro_batches);
// `ahead` forward, then one backward and one forward in turn.
StageOrder OneForwardOneBackward(size_t micro_batches, size_t ahead);

struct StageUse {
  NodeId begin = 0;
  uint32_t slots = 1;
  StageOrder order;  // micro-batch m is in slot m % slots
};

// A stage's pass begins as soon as its data are there. Values are taken from the stage before as
// late as that; so are gradients from the stage behind of every other micro-batch, or when their
// slot is about to be used again, and of the others as early as there are any. Fails the test where
// the stages wait for each other in a ring, and where a graph or a plan cannot be made.
Trained TrainStages(const Graph& graph, const CompileOptions& options,
                    const std::vector<MicroBatch>& micro_batches,
                    const std::vector<StageUse>& uses);

// To the last bit, but for the evaluation, where a batch norm is computed in another way if it lies
// in another stage than its convolution.
void ExpectSame(const Trained& actual, const Trained& expected, double evaluation_tolerance);

}  // namespace muster::nn

#endif  // MUSTER_TRAINER_GRAPH_TESTING_STAGES_H_
