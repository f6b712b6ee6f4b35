// Where a model is cut into stages.
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

// Whether `graph` can be cut into so many stages at `cuts`, the layers that the second and every
// later one begin with; none: anywhere. INVALID_ARGUMENT says why not.
absl::Status CheckCuts(const nn::Graph& graph, uint32_t stages,
                       const std::vector<std::string>& cuts);

// The first node of every stage, and behind them the number of nodes. Where `cuts` does not say,
// each stage of a pipeline measures its share of the model for micro-batches of compiling.max_batch
// rows, all of them at once, as they will compute; the first pipeline's measurements decide.
// Collective over `world` then, and all ranks get the same. INVALID_ARGUMENT as CheckCuts; the
// communicator's and Compile's errors.
absl::StatusOr<std::vector<nn::NodeId>> StageBegins(const nn::Graph& graph,
                                                    const train::PipelinePlace& place,
                                                    const std::vector<std::string>& cuts,
                                                    const nn::CompileOptions& compiling,
                                                    collectives::Communicator& world);

}  // namespace muster::pipeline

#endif  // MUSTER_TRAINER_STRATEGY_PIPELINE_STAGE_CUTS_H_
