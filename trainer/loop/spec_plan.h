// Derives the model's graph and batch sizes from a spec. Each augmented view counts as a sample
// here.
#ifndef MUSTER_TRAINER_LOOP_SPEC_PLAN_H_
#define MUSTER_TRAINER_LOOP_SPEC_PLAN_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "proto/muster/v1/job.pb.h"
#include "trainer/data/image_dataset.h"
#include "trainer/graph/graph.h"
#include "trainer/graph/plan.h"

namespace muster::train {

// Number of augmented views per sample.
uint32_t ViewsOf(const v1::ObjectiveSpec& spec);

// Maximum number of samples in one pass of a model replica: its share of an accumulation step. A
// pipeline divides it further.
uint32_t MaxSamplesOf(const v1::JobSpec& job, uint32_t world_size);

// Graph of the model with the objective's head, for images of `dataset` at the spec's size.
// INVALID_ARGUMENT, also if neither spec nor dataset defines the image size.
absl::StatusOr<nn::Graph> GraphOf(const v1::TrainSpec& spec, const data::DatasetInfo& dataset);

// INVALID_ARGUMENT for an unknown precision.
absl::StatusOr<nn::CompileOptions> CompileOptionsOf(const v1::JobSpec& job, uint32_t world_size);

}  // namespace muster::train

#endif  // MUSTER_TRAINER_LOOP_SPEC_PLAN_H_
