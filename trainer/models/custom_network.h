// A network that the spec writes out layer by layer.
#ifndef MUSTER_TRAINER_MODELS_CUSTOM_NETWORK_H_
#define MUSTER_TRAINER_MODELS_CUSTOM_NETWORK_H_

#include "absl/status/statusor.h"
#include "proto/muster/v1/job.pb.h"
#include "trainer/graph/graph.h"
#include "trainer/models/head.h"

namespace muster::nn {

inline constexpr int kMaxCustomLayers = 2000;  // all of them, those within residual blocks included
inline constexpr int kMaxResidualDepth = 8;    // of residual blocks within residual blocks

// spec.layers, named by place as torch.nn.Sequential does: "0.weight"; inside a residual block at
// place 3 "3.layers.0.weight" and "3.shortcut.0.weight". A linear layer of no width is as wide as
// there are classes. A projection takes the place of the last layer, which must then be linear.
//
// INVALID_ARGUMENT names the layer. Whether shapes fit, and whether the network ends in as many
// values as there are classes, is not checked here.
absl::StatusOr<Graph> BuildCustomNetwork(const v1::ModelSpec& spec, const ImageShape& input,
                                         const ModelHead& head);

}  // namespace muster::nn

#endif  // MUSTER_TRAINER_MODELS_CUSTOM_NETWORK_H_
