// Models for small images that train in seconds on a CPU.
#ifndef MUSTER_TRAINER_MODELS_SMALL_MODELS_H_
#define MUSTER_TRAINER_MODELS_SMALL_MODELS_H_

#include "absl/status/statusor.h"
#include "proto/muster/v1/job.pb.h"
#include "trainer/graph/graph.h"
#include "trainer/models/head.h"

namespace muster::nn {

// Two convolutions with batch norm and pooling and two linear layers, named by position as in a
// torch.nn.Sequential.
absl::StatusOr<Graph> BuildSmallCnn(const v1::ModelSpec& spec, const ImageShape& input,
                                    const ModelHead& head);

// Linear layers with ReLU between them, named by position as in a torch.nn.Sequential.
absl::StatusOr<Graph> BuildMlp(const v1::ModelSpec& spec, const ImageShape& input,
                               const ModelHead& head);

}  // namespace muster::nn

#endif  // MUSTER_TRAINER_MODELS_SMALL_MODELS_H_
