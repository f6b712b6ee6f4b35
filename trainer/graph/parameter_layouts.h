// Layouts of the weights of convolutions and linear layers in the flat array.
#ifndef MUSTER_TRAINER_GRAPH_PARAMETER_LAYOUTS_H_
#define MUSTER_TRAINER_GRAPH_PARAMETER_LAYOUTS_H_

#include <cstdint>

#include "kernels/convolution.h"
#include "trainer/graph/graph.h"
#include "trainer/graph/parameters.h"

namespace muster::nn {

// Canonical order.
TensorLayout PlainLayout(int64_t elements);

// Layout of the convolution's kernels. `convolution` must outlive the layout.
TensorLayout ConvolutionLayout(const kernels::Convolution* convolution);

// Layout of a linear layer after a flattened image: in files its columns are channel-first, as in
// PyTorch; those of `inner` are channel-last.
TensorLayout OverFlattened(const ImageShape& image, int64_t out_features, TensorLayout inner);

}  // namespace muster::nn

#endif  // MUSTER_TRAINER_GRAPH_PARAMETER_LAYOUTS_H_
