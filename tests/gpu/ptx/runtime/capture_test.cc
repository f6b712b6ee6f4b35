// Tests stream capture and graphs of the substitute CUDA runtime.
#include <functional>
#include <thread>

#include "gmock/gmock.h"
#include "tests/gpu/ptx/runtime/runtime_fixture.h"

namespace muster::ptx {
namespace {

using testing::HasSubstr;

class CaptureTest : public EveryOrderTest {
 protected:
  void Begin(cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal) {
    ASSERT_EQ(cudaStreamBeginCapture(stream(0), mode), cudaSuccess);
  }
  cudaError_t End() {
    cudaGraph_t graph = nullptr;
    const cudaError_t ended = cudaStreamEndCapture(stream(0), &graph);
    EXPECT_EQ(ended == cudaSuccess, graph != nullptr);
    if (ended != cudaSuccess) return ended;
    EXPECT_EQ(cudaGraphInstantiate(&graph_, graph, 0), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    EXPECT_EQ(cudaGraphUpload(graph_, stream(0)), cudaSuccess);
    return cudaSuccess;
  }
  cudaError_t Launch() {
    if (const cudaError_t error = cudaGraphLaunch(graph_, stream(0)); error != cudaSuccess) {
      return error;
    }
    return cudaStreamSynchronize(stream(0));
  }
  // Makes the second stream join the capture.
  void Fork() {
    ASSERT_EQ(cudaEventRecord(event(0), stream(0)), cudaSuccess);
    ASSERT_EQ(cudaStreamWaitEvent(stream(1), event(0), 0), cudaSuccess);
  }
  void Join() {
    ASSERT_EQ(cudaEventRecord(event(1), stream(1)), cudaSuccess);
    ASSERT_EQ(cudaStreamWaitEvent(stream(0), event(1), 0), cudaSuccess);
  }

  void DestroyGraph() {
    if (graph_ != nullptr) EXPECT_EQ(cudaGraphExecDestroy(graph_), cudaSuccess);
    graph_ = nullptr;
  }
  void TearDown() override {
    control().reset();
    DestroyGraph();
    EveryOrderTest::TearDown();
  }

 private:
  cudaGraphExec_t graph_ = nullptr;
};

TEST_P(CaptureTest, ReplaysWithTheArgumentsOfTheCapture) {
  float* const data = Filled(1);
  Begin();
  float addend = 2;
  ASSERT_EQ(LaunchAdd(data, addend, data, kCount, stream(0)), cudaSuccess);
  addend = 100;
  ASSERT_EQ(End(), cudaSuccess);
  EXPECT_EQ(ValuesOf(data), AllOf(1)) << "captured work must not run";
  ASSERT_EQ(Launch(), cudaSuccess);
  ASSERT_EQ(Launch(), cudaSuccess);
  EXPECT_EQ(ValuesOf(data), AllOf(5));
}

TEST_P(CaptureTest, ForksAndJoins) {
  float *const one = Filled(1), *const two = Array(), *const three = Array(), *const sum = Array();
  Begin();
  ASSERT_EQ(LaunchAdd(one, 1, two, kCount, stream(0)), cudaSuccess);
  Fork();
  ASSERT_EQ(LaunchAdd(two, 1, three, kCount, stream(1)), cudaSuccess);
  ASSERT_EQ(cudaMemsetAsync(one, 0, kBytes, stream(0)), cudaSuccess);
  Join();
  ASSERT_EQ(LaunchAdd(three, 1, sum, kCount, stream(0)), cudaSuccess);
  ASSERT_EQ(End(), cudaSuccess);
  // Both streams run work again.
  ASSERT_EQ(cudaStreamSynchronize(stream(1)), cudaSuccess);
  ASSERT_EQ(Launch(), cudaSuccess);
  EXPECT_EQ(ValuesOf(sum), AllOf(4));
  EXPECT_EQ(ValuesOf(one), AllOf(0));
}

TEST_P(CaptureTest, RefusesUnjoinedStreams) {
  float *const one = Filled(1), *const two = Array();
  Begin();
  Fork();
  ASSERT_EQ(LaunchAdd(one, 1, two, kCount, stream(1)), cudaSuccess);
  EXPECT_EQ(End(), cudaErrorStreamCaptureUnjoined);
  EXPECT_EQ(cudaStreamSynchronize(stream(1)), cudaSuccess);
}

TEST_P(CaptureTest, RefusesCallsThatCannotBeCaptured) {
  float* const data = Filled(1);
  std::vector<float> pageable(kCount);
  void* allocated = nullptr;
  cudaEvent_t outside = nullptr;
  ASSERT_EQ(cudaEventCreate(&outside), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(outside, stream(1)), cudaSuccess);
  const struct {
    const char* name;
    std::function<cudaError_t()> call;
    cudaError_t expected;
  } calls[] = {
      {"cudaStreamSynchronize", [&] { return cudaStreamSynchronize(stream(0)); },
       cudaErrorStreamCaptureUnsupported},
      {"cudaDeviceSynchronize", [&] { return cudaDeviceSynchronize(); },
       cudaErrorStreamCaptureUnsupported},
      {"cudaMalloc", [&] { return cudaMalloc(&allocated, 1); }, cudaErrorStreamCaptureUnsupported},
      {"cudaFree", [&] { return cudaFree(data); }, cudaErrorStreamCaptureUnsupported},
      {"copy to pageable memory",
       [&] { return cudaMemcpyAsync(pageable.data(), data, kBytes, cudaMemcpyDefault, stream(0)); },
       cudaErrorStreamCaptureUnsupported},
      {"query of a captured event",
       [&] {
         EXPECT_EQ(cudaEventRecord(event(0), stream(0)), cudaSuccess);
         return cudaEventQuery(event(0));
       },
       cudaErrorCapturedEvent},
      {"query of another event", [&] { return cudaEventQuery(outside); },
       cudaErrorStreamCaptureUnsupported},
      {"dependency on work outside", [&] { return cudaStreamWaitEvent(stream(0), outside, 0); },
       cudaErrorStreamCaptureIsolation},
  };
  for (const auto& [name, call, expected] : calls) {
    Begin();
    ASSERT_EQ(LaunchAdd(data, 1, data, kCount, stream(0)), cudaSuccess);
    EXPECT_EQ(call(), expected) << name;
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    ASSERT_EQ(cudaStreamIsCapturing(stream(0), &status), cudaSuccess);
    EXPECT_EQ(status, cudaStreamCaptureStatusInvalidated) << name;
    EXPECT_EQ(LaunchAdd(data, 1, data, kCount, stream(0)), cudaErrorStreamCaptureInvalidated);
    EXPECT_EQ(End(), cudaErrorStreamCaptureInvalidated) << name;
    cudaGetLastError();
  }
  EXPECT_EQ(ValuesOf(data), AllOf(1));
  EXPECT_EQ(cudaEventDestroy(outside), cudaSuccess);
}

TEST_P(CaptureTest, ForbidsUnsafeCallsByMode) {
  const auto allocates = [] {
    void* data = nullptr;
    const cudaError_t allocated = cudaMalloc(&data, 1);
    if (allocated == cudaSuccess) EXPECT_EQ(cudaFree(data), cudaSuccess);
    return allocated == cudaSuccess;
  };
  const auto allocates_elsewhere = [&] {
    bool allocated = false;
    std::thread([&] { allocated = allocates(); }).join();
    return allocated;
  };
  Begin(cudaStreamCaptureModeRelaxed);
  EXPECT_TRUE(allocates());
  EXPECT_EQ(End(), cudaSuccess);
  DestroyGraph();
  Begin(cudaStreamCaptureModeThreadLocal);
  EXPECT_TRUE(allocates_elsewhere());
  EXPECT_EQ(End(), cudaSuccess);
  DestroyGraph();
  Begin(cudaStreamCaptureModeGlobal);
  EXPECT_FALSE(allocates_elsewhere());
  EXPECT_EQ(End(), cudaErrorStreamCaptureInvalidated);
}

TEST_P(CaptureTest, EndsWhereItBegan) {
  Begin();
  Fork();
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(stream(1), &graph), cudaErrorStreamCaptureUnmatched);
  EXPECT_EQ(End(), cudaErrorStreamCaptureInvalidated);
  Begin();
  std::thread([&] {
    EXPECT_EQ(cudaStreamEndCapture(stream(0), &graph), cudaErrorStreamCaptureWrongThread);
  }).join();
  EXPECT_EQ(End(), cudaSuccess);
}

TEST_P(CaptureTest, RefusesToMergeCaptures) {
  Begin();
  ASSERT_EQ(cudaEventRecord(event(0), stream(0)), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(stream(1), cudaStreamCaptureModeThreadLocal), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(stream(1), event(0), 0), cudaErrorStreamCaptureMerge);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(stream(1), &graph), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(End(), cudaErrorStreamCaptureInvalidated);
}

TEST_P(CaptureTest, EventsOfACaptureAreUselessOutside) {
  Begin();
  ASSERT_EQ(cudaEventRecord(event(0), stream(0)), cudaSuccess);
  ASSERT_EQ(End(), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(event(0)), cudaErrorCapturedEvent);
  EXPECT_EQ(cudaStreamWaitEvent(stream(1), event(0), 0), cudaErrorCapturedEvent);
  ASSERT_EQ(cudaEventRecord(event(0), stream(0)), cudaSuccess);
  EXPECT_EQ(cudaEventSynchronize(event(0)), cudaSuccess);
}

TEST_P(CaptureTest, FindsLostPriorities) {
  float *const one = Filled(1), *const two = Array(), *const three = Array();
  int lowest = 0, highest = 0;
  ASSERT_EQ(cudaDeviceGetStreamPriorityRange(&lowest, &highest), cudaSuccess);
  for (const int priority : {lowest, highest}) {
    cudaStream_t second = nullptr;
    ASSERT_EQ(cudaStreamCreateWithPriority(&second, cudaStreamNonBlocking, priority), cudaSuccess);
    for (const bool keeps : {true, false}) {
      Begin();
      ASSERT_EQ(LaunchAdd(one, 1, two, kCount, stream(0)), cudaSuccess);
      ASSERT_EQ(cudaEventRecord(event(0), stream(0)), cudaSuccess);
      ASSERT_EQ(cudaStreamWaitEvent(second, event(0), 0), cudaSuccess);
      ASSERT_EQ(LaunchAdd(two, 1, three, kCount, second), cudaSuccess);
      ASSERT_EQ(cudaEventRecord(event(1), second), cudaSuccess);
      ASSERT_EQ(cudaStreamWaitEvent(stream(0), event(1), 0), cudaSuccess);
      cudaGraph_t graph = nullptr;
      ASSERT_EQ(cudaStreamEndCapture(stream(0), &graph), cudaSuccess);
      cudaGraphExec_t executable = nullptr;
      ASSERT_EQ(cudaGraphInstantiate(&executable, graph,
                                     keeps ? cudaGraphInstantiateFlagUseNodePriority : 0),
                cudaSuccess);
      EXPECT_EQ(control().reports(), priority == highest && !keeps ? 1u : 0u);
      EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
      EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    }
    EXPECT_EQ(cudaStreamDestroy(second), cudaSuccess);
  }
  EXPECT_THAT(TheReport(), HasSubstr("without cudaGraphInstantiateFlagUseNodePriority"));
}

INSTANTIATE_TEST_SUITE_P(Orders, CaptureTest, testing::Range(0, 4));

class LateCaptureTest : public CaptureTest {};

TEST_P(LateCaptureTest, FindsAMissingDependency) {
  float *const one = Filled(1), *const two = Array(), *const three = Array();
  Begin();
  Fork();
  ASSERT_EQ(LaunchAdd(one, 1, two, kCount, stream(0)), cudaSuccess);
  ASSERT_EQ(LaunchAdd(two, 1, three, kCount, stream(1)), cudaSuccess);
  Join();
  ASSERT_EQ(End(), cudaSuccess);
  EXPECT_NE(Launch(), cudaSuccess);
  EXPECT_THAT(TheReport(), HasSubstr("uninitiali"));
}

INSTANTIATE_TEST_SUITE_P(LastNodeFirst, LateCaptureTest, testing::Values(0));

}  // namespace
}  // namespace muster::ptx
