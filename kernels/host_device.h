// Marks functions for host and device: empty for a C++ compiler, `__host__ __device__` for CUDA.
#ifndef MUSTER_KERNELS_HOST_DEVICE_H_
#define MUSTER_KERNELS_HOST_DEVICE_H_

#ifdef __CUDACC__
#define MUSTER_HOST_DEVICE __host__ __device__
#else
#define MUSTER_HOST_DEVICE
#endif

#endif  // MUSTER_KERNELS_HOST_DEVICE_H_
