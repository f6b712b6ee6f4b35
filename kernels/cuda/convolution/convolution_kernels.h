// What is ours around NVIDIA's convolutions and matrix products. Pointers are to the memory that
// the kernels of the same library reach, 64-byte aligned.
#ifndef MUSTER_KERNELS_CUDA_CONVOLUTION_CONVOLUTION_KERNELS_H_
#define MUSTER_KERNELS_CUDA_CONVOLUTION_CONVOLUTION_KERNELS_H_

#include <cstdint>

#include "kernels/data_type.h"
#include "kernels/epilogue.h"

namespace muster::kernels {

// x [rows, columns] -> sums [columns], added up in float32 or wider; zero when rows is 0.
using ColumnSums = void(DataType type, int64_t rows, int64_t columns, const void* x, float* sums);

// sums [pixels, channels] of sums_type -> y [pixels, channels] of y_type, of which the epilogue's
// addend is. y may be sums where the types are the same.
using ApplyEpilogue = void(int64_t pixels, int64_t channels, DataType sums_type, const void* sums,
                           const Epilogue& epilogue, DataType y_type, void* y);

struct ConvolutionKernels {
  ColumnSums* column_sums;
  ApplyEpilogue* apply_epilogue;
};

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_CUDA_CONVOLUTION_CONVOLUTION_KERNELS_H_
