// A fixture of the substitute runtime's tests.
#ifndef MUSTER_TESTS_GPU_PTX_RUNTIME_RUNTIME_FIXTURE_H_
#define MUSTER_TESTS_GPU_PTX_RUNTIME_RUNTIME_FIXTURE_H_

#include <cuda_runtime_api.h>

#include <algorithm>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/gpu/ptx/runtime/control.h"
#include "tests/gpu/ptx/runtime/test_kernels.h"

namespace muster::ptx {

inline constexpr int kCount = 200;
inline constexpr size_t kBytes = kCount * sizeof(float);

class RuntimeTest : public testing::Test {
 protected:
  void SetUp() override {
    control().reset();
    control().set_order(0);
    control().set_memory(size_t{1} << 30);
    for (cudaStream_t& stream : streams_) {
      ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    }
    for (cudaEvent_t& event : events_) ASSERT_EQ(cudaEventCreate(&event), cudaSuccess);
  }
  void TearDown() override {
    control().reset();
    for (const cudaStream_t stream : streams_) cudaStreamDestroy(stream);
    for (const cudaEvent_t event : events_) cudaEventDestroy(event);
    for (float* const data : arrays_) cudaFree(data);
  }

  const PtxControl& control() const { return *MusterPtxControl(); }
  cudaStream_t stream(int i = 0) const { return streams_[i]; }
  cudaEvent_t event(int i = 0) const { return events_[i]; }

  // kCount uninitialised floats in device memory.
  float* Array() {
    float* data = nullptr;
    EXPECT_EQ(cudaMalloc(reinterpret_cast<void**>(&data), kBytes), cudaSuccess);
    arrays_.push_back(data);
    return data;
  }
  float* Filled(float value) {
    float* const data = Array();
    const std::vector<float> values(kCount, value);
    EXPECT_EQ(cudaMemcpy(data, values.data(), kBytes, cudaMemcpyHostToDevice), cudaSuccess);
    return data;
  }
  void Free(float* data) {
    arrays_.erase(std::find(arrays_.begin(), arrays_.end(), data));
    ASSERT_EQ(cudaFree(data), cudaSuccess);
  }
  std::vector<float> ValuesOf(const float* data) {
    std::vector<float> values(kCount);
    EXPECT_EQ(cudaMemcpy(values.data(), data, kBytes, cudaMemcpyDeviceToHost), cudaSuccess);
    return values;
  }
  static std::vector<float> AllOf(float value) { return std::vector<float>(kCount, value); }

  // The only report since the last reset.
  std::string TheReport() const {
    EXPECT_EQ(control().reports(), 1u);
    return control().reports() == 0 ? "" : control().report(control().reports() - 1);
  }

 private:
  cudaStream_t streams_[2] = {};
  cudaEvent_t events_[2] = {};
  std::vector<float*> arrays_;
};

// Repeats a test in several orders of execution.
class EveryOrderTest : public RuntimeTest, public testing::WithParamInterface<int> {
 protected:
  void SetUp() override {
    RuntimeTest::SetUp();
    control().set_order(static_cast<uint64_t>(GetParam()));
  }
};

}  // namespace muster::ptx

#endif  // MUSTER_TESTS_GPU_PTX_RUNTIME_RUNTIME_FIXTURE_H_
