// Builds a network whose layers are listed in the spec.
#ifndef MUSTER_TRAINER_MODELS_CUSTOM_NETWORK_H_
#define MUSTER_TRAINER_MODELS_CUSTOM_NETWORK_H_

#include "absl/status/statusor.h"
#include "proto/muster/v1/job.pb.h"
#include "trainer/graph/graph.h"
#include "trainer/models/head.h"

namespace muster::nn {

inline constexpr int kMaxCustomLayers = 2000;  // including those within residual blocks
inline constexpr int kMaxResidualDepth = 8;    // nesting depth of residual blocks

// Builds spec.layers with torch.nn.Sequential's names by position: "0.weight"; inside a residual
// block at position 3 "3.layers.0.weight" and "3.shortcut.0.weight". A linear layer without
// out_features has one output per class. A projection replaces the last layer, which must then be
// linear.
//
// INVALID_ARGUMENT names the layer. Does not check whether shapes fit or whether the network has
// one output per class.
absl::StatusOr<Graph> BuildCustomNetwork(const v1::ModelSpec& spec, const ImageShape& input,
                                         const ModelHead& head);

}  // namespace muster::nn

#endif  // MUSTER_TRAINER_MODELS_CUSTOM_NETWORK_H_
