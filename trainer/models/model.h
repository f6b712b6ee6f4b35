// Builds the graph of the model that a spec names or lists by layers.
#ifndef MUSTER_TRAINER_MODELS_MODEL_H_
#define MUSTER_TRAINER_MODELS_MODEL_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "proto/muster/v1/job.pb.h"
#include "trainer/graph/graph.h"
#include "trainer/models/head.h"

namespace muster::nn {

// Builds the model for images of one size. INVALID_ARGUMENT: unknown name, option out of range,
// image too small for the model, or a custom network whose last layer does not have one output per
// class.
absl::StatusOr<Graph> BuildModel(const v1::ModelSpec& spec, const ImageShape& input,
                                 const ModelHead& head);

// With a classifier as head.
absl::StatusOr<Graph> BuildModel(const v1::ModelSpec& spec, const ImageShape& input,
                                 int64_t classes);

}  // namespace muster::nn

#endif  // MUSTER_TRAINER_MODELS_MODEL_H_
