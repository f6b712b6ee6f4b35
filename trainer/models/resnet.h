// Residual networks: He et al., "Deep Residual Learning for Image Recognition", 2016.
#ifndef MUSTER_TRAINER_MODELS_RESNET_H_
#define MUSTER_TRAINER_MODELS_RESNET_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/muster/v1/job.pb.h"
#include "trainer/graph/graph.h"
#include "trainer/models/head.h"

namespace muster::nn {

bool IsResNet(absl::string_view name);

// Builds resnet18, 34, 50 or 101 with the parameter names, parameter order and initialization of
// torchvision.models, with the stride of a bottleneck in its 3x3 convolution. Uses
// spec.zero_init_residual, small_stem, stem_pool and stochastic_depth. Requires
// IsResNet(spec.name()).
absl::StatusOr<Graph> BuildResNet(const v1::ModelSpec& spec, const ImageShape& input,
                                  const ModelHead& head);

}  // namespace muster::nn

#endif  // MUSTER_TRAINER_MODELS_RESNET_H_
