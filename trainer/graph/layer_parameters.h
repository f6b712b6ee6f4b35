// The parameters of a layer: their names, shapes, first values and places in the flat arrays.
#ifndef MUSTER_TRAINER_GRAPH_LAYER_PARAMETERS_H_
#define MUSTER_TRAINER_GRAPH_LAYER_PARAMETERS_H_

#include <cstdint>
#include <string>

#include "trainer/graph/graph.h"
#include "trainer/graph/operation.h"
#include "trainer/graph/operations/batch_norm.h"
#include "trainer/graph/operations/convolution.h"
#include "trainer/graph/parameters.h"

namespace muster::nn {

// Each adds what the layer called `name` has, sets the offsets in `parts`, and returns the range.
// parts.shape and parts.convolution are set, and the latter outlives `flat`.
Operation::Range AddParameters(const std::string& name, const Conv2d& layer,
                               ConvolutionParts& parts, FlatLayout& flat);
// `flattened_from` is the image that the layer sees flattened.
Operation::Range AddParameters(const std::string& name, const Linear& layer,
                               const ImageShape& flattened_from, ConvolutionParts& parts,
                               FlatLayout& flat);
Operation::Range AddParameters(const std::string& name, int64_t channels, BatchNormParts& parts,
                               FlatLayout& flat, FlatLayout& buffers);

}  // namespace muster::nn

#endif  // MUSTER_TRAINER_GRAPH_LAYER_PARAMETERS_H_
