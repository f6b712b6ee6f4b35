// Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks", 2018.
#ifndef MUSTER_TRAINER_MODELS_MOBILENET_V2_H_
#define MUSTER_TRAINER_MODELS_MOBILENET_V2_H_

#include "absl/status/statusor.h"
#include "proto/muster/v1/job.pb.h"
#include "trainer/graph/graph.h"
#include "trainer/models/head.h"

namespace muster::nn {

// Builds the network with the parameter names, parameter order and initialization of
// torchvision.models. Uses spec.dropout (default 0.2) and spec.stochastic_depth, which applies to
// blocks with a residual connection.
absl::StatusOr<Graph> BuildMobileNetV2(const v1::ModelSpec& spec, const ImageShape& input,
                                       const ModelHead& head);

}  // namespace muster::nn

#endif  // MUSTER_TRAINER_MODELS_MOBILENET_V2_H_
