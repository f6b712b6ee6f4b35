// pipeline: the model is cut into stages, one for each rank; a batch goes through them in
// micro-batches. Further pipelines are replicas, whose stages all-reduce their gradients as ddp's
// ranks do. pipeline.cc has the step, pipeline_stage.h the schedule of micro-batches.
#ifndef MUSTER_TRAINER_STRATEGY_PIPELINE_PIPELINE_H_
#define MUSTER_TRAINER_STRATEGY_PIPELINE_PIPELINE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "trainer/strategy/strategy.h"

namespace muster::train {

// INVALID_ARGUMENT where the model cannot be cut as the spec asks. Connect measures where to cut,
// unless the spec names the layers, and reports that as a phase.
absl::StatusOr<std::unique_ptr<StrategySetup>> SetUpPipeline(const ModelSetup& setup);

// Shares are pipelines; each stage executes a share in micro-batches.
BatchDivision PipelineDivision(const v1::TrainSpec& spec, uint32_t world_size);

// Stages exchange by the ranks' processes.
RequiredGroups PipelineGroups(const v1::TrainSpec& spec);

}  // namespace muster::train

#endif  // MUSTER_TRAINER_STRATEGY_PIPELINE_PIPELINE_H_
