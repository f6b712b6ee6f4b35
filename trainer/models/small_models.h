// Models for small images that train in seconds on a processor.
#ifndef MUSTER_TRAINER_MODELS_SMALL_MODELS_H_
#define MUSTER_TRAINER_MODELS_SMALL_MODELS_H_

#include "absl/status/statusor.h"
#include "proto/muster/v1/job.pb.h"
#include "trainer/graph/graph.h"
#include "trainer/models/head.h"

namespace muster::nn {

// Two convolutions with batch norm and pooling, two linear layers: the network that PyTorch's users
// write as one torch.nn.Sequential, by whose places its layers are named.
absl::StatusOr<Graph> BuildSmallCnn(const v1::ModelSpec& spec, const ImageShape& input,
                                    const ModelHead& head);

// Linear layers with ReLU between them, named by their places in a torch.nn.Sequential.
absl::StatusOr<Graph> BuildMlp(const v1::ModelSpec& spec, const ImageShape& input,
                               const ModelHead& head);

}  // namespace muster::nn

#endif  // MUSTER_TRAINER_MODELS_SMALL_MODELS_H_
