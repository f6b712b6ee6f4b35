// Selects the layers at which a model is cut into pipeline stages.
#ifndef MUSTER_TRAINER_STRATEGY_PIPELINE_STAGE_CUTS_H_
#define MUSTER_TRAINER_STRATEGY_PIPELINE_STAGE_CUTS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collectives/communicator.h"
#include "trainer/graph/graph.h"
#include "trainer/graph/plan.h"
#include "trainer/strategy/process_groups.h"

namespace muster::pipeline {

// Checks that `graph` can be cut into `stages` stages at `cuts`, the first layers of the second and
// later stages; empty: at any layers. INVALID_ARGUMENT explains why it cannot.
absl::Status CheckCuts(const nn::Graph& graph, uint32_t stages,
                       const std::vector<std::string>& cuts);

// Returns the first node of every stage, followed by the number of nodes. If `cuts` is empty, this
// is collective over `world`: each stage of a pipeline measures its share of the model with
// micro-batches of compiling.max_batch samples, all at the same time as in training; the
// measurements of the first pipeline decide, and all ranks get the same result. INVALID_ARGUMENT as
// CheckCuts; errors of the communicator and of Compile.
absl::StatusOr<std::vector<nn::NodeId>> StageBegins(const nn::Graph& graph,
                                                    const train::PipelinePlace& place,
                                                    const std::vector<std::string>& cuts,
                                                    const nn::CompileOptions& compiling,
                                                    collectives::Communicator& world);

}  // namespace muster::pipeline

#endif  // MUSTER_TRAINER_STRATEGY_PIPELINE_STAGE_CUTS_H_
