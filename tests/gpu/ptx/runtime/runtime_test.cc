// Tests memory, streams, events and errors of the substitute CUDA runtime.
#include <cstring>
#include <thread>

#include "gmock/gmock.h"
#include "tests/gpu/ptx/runtime/runtime_fixture.h"

namespace muster::ptx {
namespace {

using testing::HasSubstr;

TEST_F(RuntimeTest, RunsWorkWhenItIsWaitedFor) {
  float* const from = Filled(1);
  float* const to = Array();
  const uint64_t before = control().launches();
  ASSERT_EQ(LaunchAdd(from, 2, to, kCount, stream()), cudaSuccess);
  EXPECT_EQ(control().launches(), before);
  ASSERT_EQ(cudaStreamSynchronize(stream()), cudaSuccess);
  EXPECT_EQ(control().launches(), before + 1);
  EXPECT_EQ(ValuesOf(to), AllOf(3));
}

TEST_P(EveryOrderTest, KeepsTheOrderOfAStream) {
  float* const data = Filled(1);
  for (int i = 0; i < 5; ++i) {
    ASSERT_EQ(LaunchAdd(data, 1, data, kCount, stream()), cudaSuccess);
  }
  ASSERT_EQ(cudaMemsetAsync(data, 0, sizeof(float), stream()), cudaSuccess);
  ASSERT_EQ(LaunchReverse(data, 128, true, stream()), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(stream()), cudaSuccess);
  std::vector<float> expected = AllOf(6);
  expected[63] = 0;
  EXPECT_EQ(ValuesOf(data), expected);
}

TEST_P(EveryOrderTest, WaitsForEventsOfOtherStreams) {
  float* const from = Filled(1);
  float *const between = Array(), *const to = Array();
  ASSERT_EQ(LaunchAdd(from, 1, between, kCount, stream(0)), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(event(0), stream(0)), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(stream(1), event(0), 0), cudaSuccess);
  // A later recording is not waited for.
  ASSERT_EQ(cudaEventRecord(event(0), stream(1)), cudaSuccess);
  ASSERT_EQ(LaunchAdd(between, 1, to, kCount, stream(1)), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(event(1), stream(1)), cudaSuccess);
  // Overwrites what the other stream reads, after it.
  ASSERT_EQ(cudaStreamWaitEvent(stream(0), event(1), 0), cudaSuccess);
  ASSERT_EQ(LaunchAdd(from, 10, between, kCount, stream(0)), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(ValuesOf(to), AllOf(3));
  EXPECT_EQ(ValuesOf(between), AllOf(11));
}

TEST_P(EveryOrderTest, OrdersTheDefaultStreamWithBlockingStreams) {
  cudaStream_t blocking = nullptr;
  ASSERT_EQ(cudaStreamCreate(&blocking), cudaSuccess);
  float* const from = Filled(1);
  float *const between = Array(), *const to = Array();
  ASSERT_EQ(LaunchAdd(from, 1, between, kCount, blocking), cudaSuccess);
  ASSERT_EQ(LaunchAdd(between, 1, between, kCount, nullptr), cudaSuccess);
  ASSERT_EQ(LaunchAdd(between, 1, to, kCount, blocking), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(blocking), cudaSuccess);
  EXPECT_EQ(ValuesOf(to), AllOf(4));
  EXPECT_EQ(cudaStreamDestroy(blocking), cudaSuccess);
}

INSTANTIATE_TEST_SUITE_P(Orders, EveryOrderTest, testing::Range(0, 6));

TEST_F(RuntimeTest, FindsAMissingWait) {
  float* const from = Filled(1);
  float *const between = Array(), *const to = Array();
  ASSERT_EQ(LaunchAdd(from, 1, between, kCount, stream(0)), cudaSuccess);
  ASSERT_EQ(LaunchAdd(between, 1, to, kCount, stream(1)), cudaSuccess);
  EXPECT_NE(cudaStreamSynchronize(stream(1)), cudaSuccess);
  EXPECT_THAT(TheReport(), HasSubstr("uninitiali"));
}

TEST_F(RuntimeTest, FindsAWaitBeforeTheRecording) {
  float* const from = Filled(1);
  float *const between = Array(), *const to = Array();
  ASSERT_EQ(LaunchAdd(from, 1, between, kCount, stream(0)), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(stream(1), event(), 0), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(event(), stream(0)), cudaSuccess);
  ASSERT_EQ(LaunchAdd(between, 1, to, kCount, stream(1)), cudaSuccess);
  EXPECT_NE(cudaStreamSynchronize(stream(1)), cudaSuccess);
  EXPECT_THAT(TheReport(), HasSubstr("uninitiali"));
}

TEST_F(RuntimeTest, FindsAnOverwriteBeforeTheRead) {
  control().set_order(1);
  float* const from = Filled(1);
  float* const to = Array();
  ASSERT_EQ(LaunchAdd(from, 1, to, kCount, stream(0)), cudaSuccess);
  ASSERT_EQ(LaunchAdd(from, 7, from, kCount, stream(1)), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(stream(0)), cudaSuccess);
  EXPECT_EQ(ValuesOf(to), AllOf(9));
}

TEST_F(RuntimeTest, FindsAnOffByOneIndex) {
  float* const from = Filled(1);
  float* const to = Array();
  ASSERT_EQ(LaunchAddOffByOne(from, 1, to, kCount, stream()), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream()), cudaErrorIllegalAddress);
  EXPECT_THAT(TheReport(), HasSubstr("AddOffByOne"));
  EXPECT_THAT(TheReport(), HasSubstr("out of bounds"));
}

TEST_F(RuntimeTest, FindsAMissingBarrier) {
  float* const data = Filled(1);
  ASSERT_EQ(LaunchReverse(data, 128, false, stream()), cudaSuccess);
  EXPECT_NE(cudaStreamSynchronize(stream()), cudaSuccess);
  EXPECT_THAT(TheReport(), HasSubstr("Reverse"));
}

TEST_F(RuntimeTest, FindsARaceOfABlock) {
  ASSERT_EQ(LaunchStoreToOne(Filled(1), stream()), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream()), cudaErrorLaunchFailure);
  EXPECT_THAT(TheReport(), HasSubstr("race"));
}

TEST_F(RuntimeTest, FindsAWrongParameterLayout) {
  const float* from = Filled(1);
  float* to = Array();
  float addend = 1;
  int count = kCount;
  // The kernel's parameters are (from, addend, to, count).
  struct alignas(8) {
    float addend;
    int count;
  } packed = {addend, count};
  void* wrong[] = {&from, &to, &packed, &packed};
  ASSERT_EQ(cudaLaunchKernel(AddFunction(), dim3(4), dim3(kBlockThreads), wrong, 0, stream()),
            cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream()), cudaErrorIllegalAddress);
  control().reset();
  void* right[] = {&from, &addend, &to, &count};
  ASSERT_EQ(cudaLaunchKernel(AddFunction(), dim3(4), dim3(kBlockThreads), right, 0, stream()),
            cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream()), cudaSuccess);
}

TEST_F(RuntimeTest, FindsUseAfterFree) {
  float* const from = Filled(1);
  float* const to = Array();
  Free(from);
  ASSERT_EQ(LaunchAdd(from, 1, to, kCount, stream()), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream()), cudaErrorIllegalAddress);
  EXPECT_THAT(TheReport(), HasSubstr("after free"));
  control().reset();
  EXPECT_EQ(cudaMemcpyAsync(to, from, kBytes, cudaMemcpyDefault, stream()), cudaErrorInvalidValue);
  EXPECT_THAT(TheReport(), HasSubstr("freed"));
  EXPECT_EQ(cudaFree(from), cudaErrorInvalidValue);
}

TEST_F(RuntimeTest, FindsUninitializedBytesInCopiesToTheHost) {
  float* const data = Filled(1);
  float* const partly = Array();
  ASSERT_EQ(cudaMemcpyAsync(partly, data, kBytes - 4, cudaMemcpyDefault, stream()), cudaSuccess);
  std::vector<float> values(kCount);
  EXPECT_EQ(cudaMemcpyAsync(values.data(), partly, kBytes - 4, cudaMemcpyDefault, stream()),
            cudaSuccess);
  EXPECT_NE(cudaMemcpyAsync(values.data(), partly, kBytes, cudaMemcpyDefault, stream()),
            cudaSuccess);
  EXPECT_THAT(TheReport(), HasSubstr("uninitiali"));
}

TEST_F(RuntimeTest, RefusesCopiesOutOfBounds) {
  std::vector<float> values(kCount + 1);
  EXPECT_EQ(cudaMemcpyAsync(values.data(), Filled(1), kBytes + 4, cudaMemcpyDefault, stream()),
            cudaErrorInvalidValue);
  EXPECT_THAT(TheReport(), HasSubstr("out of bounds"));
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(values.data(), Filled(1), kBytes, cudaMemcpyHostToDevice),
            cudaErrorInvalidValue);
}

TEST_F(RuntimeTest, StagesPageableSourcesOnly) {
  float* pinned = nullptr;
  ASSERT_EQ(cudaMallocHost(reinterpret_cast<void**>(&pinned), kBytes), cudaSuccess);
  float *const first = Array(), *const second = Array();
  std::vector<float> pageable = AllOf(1);
  std::copy(pageable.begin(), pageable.end(), pinned);
  ASSERT_EQ(cudaMemcpyAsync(first, pageable.data(), kBytes, cudaMemcpyDefault, stream()),
            cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(second, pinned, kBytes, cudaMemcpyDefault, stream()), cudaSuccess);
  pageable.assign(kCount, 2);
  std::copy(pageable.begin(), pageable.end(), pinned);
  ASSERT_EQ(cudaStreamSynchronize(stream()), cudaSuccess);
  EXPECT_EQ(ValuesOf(first), AllOf(1));
  EXPECT_EQ(ValuesOf(second), AllOf(2));
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
}

TEST_F(RuntimeTest, LimitsTheMemory) {
  control().set_memory(4 * kBytes);
  size_t free_bytes = 0, total = 0;
  float* const data = Array();
  ASSERT_EQ(cudaMemGetInfo(&free_bytes, &total), cudaSuccess);
  EXPECT_EQ(total, 4 * kBytes);
  EXPECT_EQ(free_bytes, 3 * kBytes);
  void* more = nullptr;
  EXPECT_EQ(cudaMalloc(&more, 3 * kBytes + 1), cudaErrorMemoryAllocation);
  EXPECT_STREQ(cudaGetErrorString(cudaGetLastError()), "out of memory");
  Free(data);
  ASSERT_EQ(cudaMalloc(&more, 4 * kBytes), cudaSuccess);
  EXPECT_EQ(cudaFree(more), cudaSuccess);
}

TEST_F(RuntimeTest, KeepsErrorsOfKernelsUntilTheEnd) {
  float* const from = Filled(1);
  ASSERT_EQ(LaunchAddOffByOne(from, 1, from, kCount, stream(0)), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(event(), stream(0)), cudaSuccess);
  // The error shows once the work has run.
  EXPECT_EQ(cudaEventSynchronize(event()), cudaErrorIllegalAddress);
  void* data = nullptr;
  EXPECT_EQ(cudaMalloc(&data, 1), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaStreamSynchronize(stream(1)), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaEventQuery(event(1)), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaGetLastError(), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaGetLastError(), cudaErrorIllegalAddress);
}

TEST_F(RuntimeTest, InjectsErrorsIntoCalls) {
  control().fail_call("cudaMalloc", 2, cudaErrorMemoryAllocation);
  void *first = nullptr, *second = nullptr;
  EXPECT_EQ(cudaMalloc(&first, 1), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&second, 1), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaMalloc(&second, 1), cudaSuccess);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaFree(first), cudaSuccess);
  EXPECT_EQ(cudaFree(second), cudaSuccess);
  float* const data = Filled(1);
  control().fail_call("execution", 2, cudaErrorECCUncorrectable);
  ASSERT_EQ(LaunchAdd(data, 1, data, kCount, stream()), cudaSuccess);
  ASSERT_EQ(LaunchAdd(data, 1, data, kCount, stream()), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream()), cudaErrorECCUncorrectable);
  EXPECT_EQ(cudaStreamSynchronize(stream()), cudaErrorECCUncorrectable);
}

TEST_F(RuntimeTest, RefusesInvalidConfigurations) {
  float* const data = Array();
  EXPECT_EQ(LaunchWithThreads(data, 2048, stream()), cudaErrorInvalidConfiguration);
  EXPECT_EQ(LaunchWithThreads(data, 0, stream()), cudaErrorInvalidConfiguration);
  // The kernel is compiled for at most 256.
  EXPECT_EQ(LaunchWithThreads(data, 512, stream()), cudaErrorLaunchOutOfResources);
  EXPECT_EQ(LaunchWithThreads(data, 256, stream()), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream()), cudaSuccess);
  const cudaStream_t gone = stream();
  cudaStream_t other = nullptr;
  ASSERT_EQ(cudaStreamCreate(&other), cudaSuccess);
  ASSERT_EQ(cudaStreamDestroy(other), cudaSuccess);
  EXPECT_EQ(LaunchWithThreads(data, 256, other), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(LaunchWithThreads(data, 256, gone), cudaSuccess);
}

TEST_F(RuntimeTest, ReportsTheStateOfEvents) {
  EXPECT_EQ(cudaEventQuery(event(0)), cudaSuccess) << "never recorded";
  float* const data = Filled(1);
  ASSERT_EQ(cudaEventRecord(event(0), stream()), cudaSuccess);
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(LaunchAdd(data, 1, data, kCount, stream()), cudaSuccess);
  }
  ASSERT_EQ(cudaEventRecord(event(1), stream()), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(event(1)), cudaErrorNotReady);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  float milliseconds = 0;
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, event(0), event(1)), cudaErrorNotReady);
  // Queries advance the work.
  while (cudaEventQuery(event(1)) == cudaErrorNotReady) {
  }
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, event(0), event(1)), cudaSuccess);
  EXPECT_GT(milliseconds, 0);
  EXPECT_EQ(ValuesOf(data), AllOf(4));
}

TEST_F(RuntimeTest, CreatesStreamsWithPriorities) {
  int lowest = 0, highest = 0, priority = 0;
  ASSERT_EQ(cudaDeviceGetStreamPriorityRange(&lowest, &highest), cudaSuccess);
  EXPECT_LT(highest, lowest);
  cudaStream_t made = nullptr;
  ASSERT_EQ(cudaStreamCreateWithPriority(&made, cudaStreamNonBlocking, highest - 1), cudaSuccess);
  EXPECT_EQ(cudaStreamGetPriority(made, &priority), cudaSuccess);
  EXPECT_EQ(priority, highest);
  EXPECT_EQ(cudaStreamDestroy(made), cudaSuccess);
}

}  // namespace
}  // namespace muster::ptx
