// From a spec to what the engine computes for it: the model's graph, and how many samples at a
// time. Each augmented view counts as a sample here.
#ifndef MUSTER_TRAINER_LOOP_SPEC_PLAN_H_
#define MUSTER_TRAINER_LOOP_SPEC_PLAN_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "proto/muster/v1/job.pb.h"
#include "trainer/data/image_dataset.h"
#include "trainer/graph/graph.h"
#include "trainer/graph/plan.h"

namespace muster::train {

// Augmented views of each sample.
uint32_t ViewsOf(const v1::ObjectiveSpec& spec);

// At most, in one pass of a replica of the model: its share of an accumulation step. A pipeline
// divides that further.
uint32_t MaxSamplesOf(const v1::TrainSpec& spec, uint32_t world_size);

// The model for images of `dataset` in the spec's size, with the objective's head.
// INVALID_ARGUMENT, also for an image size that neither spec nor data set gives.
absl::StatusOr<nn::Graph> GraphOf(const v1::TrainSpec& spec, const data::DatasetInfo& dataset);

// INVALID_ARGUMENT for a precision that is not known.
absl::StatusOr<nn::CompileOptions> CompileOptionsOf(const v1::JobSpec& job, uint32_t world_size);

}  // namespace muster::train

#endif  // MUSTER_TRAINER_LOOP_SPEC_PLAN_H_
