// The models that a spec can name or write out, as graphs.
#ifndef MUSTER_TRAINER_MODELS_MODEL_H_
#define MUSTER_TRAINER_MODELS_MODEL_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "proto/muster/v1/job.pb.h"
#include "trainer/graph/graph.h"
#include "trainer/models/head.h"

namespace muster::nn {

// The model for images of one size. INVALID_ARGUMENT for an unknown name, an option out of range, a
// shape that is too small for the model, and a network of one's own whose last layer is not as wide
// as there are classes.
absl::StatusOr<Graph> BuildModel(const v1::ModelSpec& spec, const ImageShape& input,
                                 const ModelHead& head);

// With a classifier.
absl::StatusOr<Graph> BuildModel(const v1::ModelSpec& spec, const ImageShape& input,
                                 int64_t classes);

}  // namespace muster::nn

#endif  // MUSTER_TRAINER_MODELS_MODEL_H_
