// Kernels that complete cuDNN's convolutions and cuBLASLt's matrix products: epilogues, gradients
// of biases, and the losses of NT-Xent, which NVIDIA's libraries do not compute. Pointers are to
// device memory, 64-byte aligned.
#ifndef MUSTER_KERNELS_CUDA_CONVOLUTION_CONVOLUTION_KERNELS_H_
#define MUSTER_KERNELS_CUDA_CONVOLUTION_CONVOLUTION_KERNELS_H_

#include <cstdint>

#include "kernels/data_type.h"
#include "kernels/epilogue.h"
#include "kernels/nt_xent.h"

namespace muster::kernels {

// x [rows, columns] -> sums [columns], accumulated in float32 or wider; zero if rows is 0.
using ColumnSums = void(DataType type, int64_t rows, int64_t columns, const void* x, float* sums);

// sums [pixels, channels] of sums_type -> y [pixels, channels] of y_type. The epilogue's addend is
// of y_type. y may be the same array as sums if the types are the same.
using ApplyEpilogue = void(int64_t pixels, int64_t channels, DataType sums_type, const void* sums,
                           const Epilogue& epilogue, DataType y_type, void* y);

// NtXentForward after its product: logits holds the products of the units on entry.
using NtXentLosses = void(const NtXentShape& shape, float* logits, float* log_sums,
                          LossResult* result);
// NtXentBackward before its product: overwrites the logits by the coefficients of each sample's
// unit in the gradients of the anchors' units.
using NtXentCoefficients = void(const NtXentShape& shape, double scale, const double* loss_scale,
                                const float* log_sums, float* logits);

struct ConvolutionKernels {
  ColumnSums* column_sums;
  ApplyEpilogue* apply_epilogue;
  NtXentLosses* nt_xent_losses;
  NtXentCoefficients* nt_xent_coefficients;
};

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_CUDA_CONVOLUTION_CONVOLUTION_KERNELS_H_
