// pipeline: the model is cut into stages, one per rank, and a batch passes through them in
// micro-batches. Additional pipelines are replicas whose stages all-reduce their gradients as ddp
// ranks do. The step is in pipeline.cc, the schedule of micro-batches in pipeline_stage.h.
#ifndef MUSTER_TRAINER_STRATEGY_PIPELINE_PIPELINE_H_
#define MUSTER_TRAINER_STRATEGY_PIPELINE_PIPELINE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "trainer/strategy/strategy.h"

namespace muster::train {

// INVALID_ARGUMENT if the model cannot be cut as the spec requires. Unless the spec names the
// layers to cut at, Connect chooses the cuts by measurement and reports this as a phase.
absl::StatusOr<std::unique_ptr<StrategySetup>> SetUpPipeline(const ModelSetup& setup);

// One share of the batch per pipeline, executed in micro-batches.
BatchDivision PipelineDivision(const v1::TrainSpec& spec, uint32_t world_size);

// Stages communicate through the ranks' processes, not between devices.
RequiredGroups PipelineGroups(const v1::TrainSpec& spec);

}  // namespace muster::train

#endif  // MUSTER_TRAINER_STRATEGY_PIPELINE_PIPELINE_H_
