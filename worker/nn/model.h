// The models that a spec can name, as graphs.
#ifndef MUSTER_WORKER_NN_MODEL_H_
#define MUSTER_WORKER_NN_MODEL_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "proto/muster/v1/job.pb.h"
#include "worker/nn/graph.h"

namespace muster::nn {

// INVALID_ARGUMENT for an unknown name, an option out of range, or a shape that is too small for
// the model.
absl::StatusOr<Graph> BuildModel(const v1::ModelSpec& spec, const ImageShape& input,
                                 int64_t classes);

}  // namespace muster::nn

#endif  // MUSTER_WORKER_NN_MODEL_H_
