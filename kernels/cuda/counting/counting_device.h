// A device that records the launches of a GPU in the LaunchLog and computes nothing.
#ifndef MUSTER_KERNELS_CUDA_COUNTING_COUNTING_DEVICE_H_
#define MUSTER_KERNELS_CUDA_COUNTING_COUNTING_DEVICE_H_

#include <memory>

#include "kernels/cuda/counting/gpu_model.h"
#include "kernels/device.h"

namespace muster::kernels {

// Its memory is reserved address space that no code can access, so that plans of any size fit.
// Copies between host and device memory are not recorded, since they are not captured in graphs,
// and leave host memory as it is.
std::unique_ptr<Device> MakeCountingDevice(const GpuModel& model);

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_CUDA_COUNTING_COUNTING_DEVICE_H_
