// Marks what both processors run: nothing to a C++ compiler, `__host__ __device__` to a CUDA one.
#ifndef MUSTER_KERNELS_HOST_DEVICE_H_
#define MUSTER_KERNELS_HOST_DEVICE_H_

#ifdef __CUDACC__
#define MUSTER_HOST_DEVICE __host__ __device__
#else
#define MUSTER_HOST_DEVICE
#endif

#endif  // MUSTER_KERNELS_HOST_DEVICE_H_
