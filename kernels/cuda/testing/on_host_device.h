// A fake CUDA device in host memory, for tests on machines without a GPU.
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
  std::string plan_folder;  // folder of the PlanCache
  // Measured milliseconds of a run of a plan of the fake cuDNN's engine. Of equally fast engines
  // the first is chosen. Plans that are measured compute nothing.
  std::function<float(int engine)> time = [](int) { return 100.0f; };
  // Returned by supports_graph_capture, so that plans make the same calls in every step. There is
  // no capture.
  bool captures = false;
  cuda::Numerics numerics;
};

// A device in the process's memory that creates layers as a GPU does, with the CUDA kernels on the
// host and the fake cuDNN and cuBLASLt, whose state is global to the process. Synchronize returns
// the layers' errors. Kernels, copies and memsets are recorded in the LaunchLog.
std::unique_ptr<Device> MakeCudaOnHostDevice(const CudaOnHostOptions& options = {});

// The state of the fake libraries.
FakeCudnn& GetFakeCudnn();
FakeCublasLt& GetFakeCublasLt();
// Whether the fake libraries are there; false outside the build tree.
bool HasFakeLibraries();

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_CUDA_TESTING_ON_HOST_DEVICE_H_
