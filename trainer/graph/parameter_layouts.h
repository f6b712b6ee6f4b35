// How the weights of convolutions and linear layers lie in the flat array.
#ifndef MUSTER_TRAINER_GRAPH_PARAMETER_LAYOUTS_H_
#define MUSTER_TRAINER_GRAPH_PARAMETER_LAYOUTS_H_

#include <cstdint>

#include "kernels/convolution.h"
#include "trainer/graph/graph.h"
#include "trainer/graph/parameters.h"

namespace muster::nn {

// In the canonical order.
TensorLayout PlainLayout(int64_t elements);

// As the convolution's kernels want them. `convolution` outlives the layout.
TensorLayout ConvolutionLayout(const kernels::Convolution* convolution);

// Of a linear layer that sees an image flattened: in files its columns are channel-first, as
// PyTorch flattens; `inner`'s are channel-last.
TensorLayout OverFlattened(const ImageShape& image, int64_t out_features, TensorLayout inner);

}  // namespace muster::nn

#endif  // MUSTER_TRAINER_GRAPH_PARAMETER_LAYOUTS_H_
