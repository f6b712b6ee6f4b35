// SgdStep of kernels/optimizer.h on a GPU, as the CUDA library exports it.
#ifndef MUSTER_KERNELS_CUDA_SGD_H_
#define MUSTER_KERNELS_CUDA_SGD_H_

#include <cstddef>

extern "C" {

// How many CUDA devices there are; 0 with `*error` set to the runtime's own words (static storage)
// when it cannot say.
int MusterCudaDeviceCount(const char** error);

// kernels::SgdStep over device memory on `stream` (a cudaStream_t; null: the default stream).
// velocities may be null when momentum is 0; nesterov is 0 or 1. Returns a cudaError_t: 0 is
// success, and the step is queued, not finished.
int MusterCudaSgdStep(float learning_rate, float momentum, float weight_decay, int nesterov,
                      float gradient_scale, float* parameters, float* velocities,
                      const float* gradients, size_t count, void* stream);

}  // extern "C"

#endif  // MUSTER_KERNELS_CUDA_SGD_H_
