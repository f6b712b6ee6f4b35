// Opens the CUDA library as muster-rank would, and holds its SGD to the reference where there is a
// GPU.
#include "kernels/cuda/sgd.h"

#include <cuda_runtime.h>
#include <dlfcn.h>

#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/kernel_table.h"

namespace muster::kernels {
namespace {

class CudaSgdTest : public testing::Test {
 protected:
  void SetUp() override {
    library_ = dlopen("libmuster-cuda.so", RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library_, nullptr) << dlerror();
    device_count_ = reinterpret_cast<decltype(&MusterCudaDeviceCount)>(
        dlsym(library_, "MusterCudaDeviceCount"));
    sgd_step_ =
        reinterpret_cast<decltype(&MusterCudaSgdStep)>(dlsym(library_, "MusterCudaSgdStep"));
    ASSERT_NE(device_count_, nullptr);
    ASSERT_NE(sgd_step_, nullptr);
  }
  void TearDown() override {
    if (library_ != nullptr) dlclose(library_);
  }

  void* library_ = nullptr;
  decltype(&MusterCudaDeviceCount) device_count_ = nullptr;
  decltype(&MusterCudaSgdStep) sgd_step_ = nullptr;
};

TEST_F(CudaSgdTest, OpensWithoutADriverAndSaysWhy) {
  const char* error = nullptr;
  const int devices = device_count_(&error);
  if (devices == 0) {
    ASSERT_NE(error, nullptr);
    EXPECT_STRNE(error, "");
  }
}

TEST_F(CudaSgdTest, AgreesWithTheReference) {
  const char* error = nullptr;
  if (device_count_(&error) == 0) GTEST_SKIP() << "no GPU: " << error;
  constexpr size_t kCount = 100003;
  std::vector<float> parameters(kCount), velocities(kCount), gradients(kCount);
  for (size_t i = 0; i < kCount; ++i) {
    parameters[i] = std::sin(0.1f * static_cast<float>(i));
    velocities[i] = std::cos(0.3f * static_cast<float>(i));
    gradients[i] = std::sin(0.7f * static_cast<float>(i));
  }
  float* device = nullptr;
  ASSERT_EQ(cudaMalloc(&device, 3 * kCount * sizeof(float)), cudaSuccess);
  const size_t bytes = kCount * sizeof(float);
  ASSERT_EQ(cudaMemcpy(device, parameters.data(), bytes, cudaMemcpyHostToDevice), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(device + kCount, velocities.data(), bytes, cudaMemcpyHostToDevice),
            cudaSuccess);
  ASSERT_EQ(cudaMemcpy(device + 2 * kCount, gradients.data(), bytes, cudaMemcpyHostToDevice),
            cudaSuccess);
  ASSERT_EQ(sgd_step_(0.1f, 0.9f, 5e-4f, /*nesterov=*/1, 0.5f, device, device + kCount,
                      device + 2 * kCount, kCount, nullptr),
            cudaSuccess);
  std::vector<float> result(kCount);
  ASSERT_EQ(cudaMemcpy(result.data(), device, bytes, cudaMemcpyDeviceToHost), cudaSuccess);
  cudaFree(device);
  SgdOptions options;
  options.learning_rate = 0.1f;
  options.momentum = 0.9f;
  options.weight_decay = 5e-4f;
  options.nesterov = true;
  options.gradient_scale = 0.5f;
  ReferenceKernels().sgd_step(options, parameters.data(), velocities.data(), gradients.data(),
                              kCount);
  for (size_t i = 0; i < kCount; ++i) ASSERT_NEAR(result[i], parameters[i], 1e-6) << i;
}

}  // namespace
}  // namespace muster::kernels
