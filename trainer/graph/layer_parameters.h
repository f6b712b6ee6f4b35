// Adds a layer's parameters to the flat arrays: names, shapes, initial values and offsets.
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

// Each overload adds the parameters of the layer called `name`, sets the offsets in `parts` and
// returns the range. parts.shape and parts.convolution must be set; the latter must outlive `flat`.
Operation::Range AddParameters(const std::string& name, const Conv2d& layer,
                               ConvolutionParts& parts, FlatLayout& flat);
// `flattened_from` is the shape of the image that was flattened into the layer's input.
Operation::Range AddParameters(const std::string& name, const Linear& layer,
                               const ImageShape& flattened_from, ConvolutionParts& parts,
                               FlatLayout& flat);
Operation::Range AddParameters(const std::string& name, int64_t channels, BatchNormParts& parts,
                               FlatLayout& flat, FlatLayout& buffers);

}  // namespace muster::nn

#endif  // MUSTER_TRAINER_GRAPH_LAYER_PARAMETERS_H_
