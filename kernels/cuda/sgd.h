// kernels/sgd.h on a GPU, as the CUDA library exports it.
#ifndef MUSTER_KERNELS_CUDA_SGD_H_
#define MUSTER_KERNELS_CUDA_SGD_H_

#include <cstddef>

extern "C" {

// How many CUDA devices there are; 0 with `*error` set to the runtime's own words (static storage)
// when it cannot say.
int MusterCudaDeviceCount(const char** error);

// kernels::SgdStep over device memory on `stream` (a cudaStream_t; null: the default stream).
// momentum may be null when the factor is 0. Returns a cudaError_t: 0 is success, and the step is
// queued, not finished.
int MusterCudaSgdStep(float learning_rate, float momentum_factor, float weight_decay,
                      float* parameters, float* momentum, const float* gradients, size_t count,
                      void* stream);

}  // extern "C"

#endif  // MUSTER_KERNELS_CUDA_SGD_H_
