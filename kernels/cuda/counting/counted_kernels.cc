#include "kernels/cuda/counting/counted_kernels.h"

#include "kernels/cuda/table/all_sources.h"

namespace muster::kernels {

const KernelTable& CountedKernels() { return cuda_counted::kKernels; }

const ConvolutionKernels& CountedConvolutionKernels() { return cuda_counted::kConvolutionKernels; }

}  // namespace muster::kernels
