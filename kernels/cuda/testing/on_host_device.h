// For tests where there is no GPU.
#ifndef MUSTER_KERNELS_CUDA_TESTING_ON_HOST_DEVICE_H_
#define MUSTER_KERNELS_CUDA_TESTING_ON_HOST_DEVICE_H_

#include <functional>
#include <memory>
#include <string>

#include "kernels/cuda/convolution/layer_factory.h"
#include "kernels/cuda/testing/fake_cublaslt.h"
#include "kernels/cuda/testing/fake_cudnn.h"
#include "kernels/device.h"

namespace muster::kernels {

struct CudaOnHostOptions {
  std::string plan_folder;  // of a PlanCache
  // Milliseconds that some runs of a plan by the fake cuDNN's engine take; the first engine is the
  // fastest of all alike. What is to be measured is not run again.
  std::function<float(int engine)> time = [](int) { return 1.0f; };
};

// A GPU's code for layers, over the process's memory: the CUDA kernels on the host, and the
// libraries of testing/fake_*.h, whose state is the process's. Errors of layers are Synchronize's.
std::unique_ptr<Device> MakeCudaOnHostDevice(const CudaOnHostOptions& options = {});

// To steer them.
FakeCudnn& GetFakeCudnn();
FakeCublasLt& GetFakeCublasLt();
// False outside the build's own tree.
bool HasFakeLibraries();

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_CUDA_TESTING_ON_HOST_DEVICE_H_
