#include "trainer/strategy/step_graphs.h"

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/host_memory_device.h"
#include "kernels/testing/capturing_device.h"
#include "kernels/testing/failing_device.h"
#include "trainer/loop/testing.h"

namespace muster::train {
namespace {

class StepGraphsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (kernels::DeviceMemory* memory : {&one_, &sum_}) {
      auto allocated = device_.Allocate(sizeof(float));
      ASSERT_TRUE(allocated.ok());
      *memory = *std::move(allocated);
    }
    const float one = 1;
    device_.CopyToDevice(one_.data(), &one, sizeof(one));
  }

  // Adds one to the sum, `times` times.
  absl::Status Add(StepGraphs& graphs, uint64_t times) {
    return graphs.Run({times}, [&] {
      ++called_;
      for (uint64_t i = 0; i < times; ++i) {
        device_.kernels().accumulate(kernels::DataType::kFloat32, 1, one_.data(), sum_.data());
      }
      return absl::OkStatus();
    });
  }
  float Sum() {
    float sum = 0;
    device_.CopyToHost(&sum, sum_.data(), sizeof(sum));
    return sum;
  }

  kernels::Device& device_ = kernels::CapturingDevice();
  const std::vector<ProcessGroups> world_ = MakeLoopbackWorld(1);
  kernels::DeviceMemory one_, sum_;
  int called_ = 0;
};

TEST_F(StepGraphsTest, CallsTwiceAndLaunchesFromThenOn) {
  StepGraphs graphs(device_, *world_[0].world, /*enabled=*/true);
  for (int step = 1; step <= 5; ++step) {
    ASSERT_TRUE(Add(graphs, 2).ok());
    EXPECT_EQ(Sum(), 2 * step);
  }
  EXPECT_EQ(called_, 2);
}

TEST_F(StepGraphsTest, CapturesOneGraphPerKey) {
  StepGraphs graphs(device_, *world_[0].world, /*enabled=*/true);
  float expected = 0;
  for (int step = 0; step < 4; ++step) {
    for (const uint64_t times : {1, 3}) {
      ASSERT_TRUE(Add(graphs, times).ok());
      expected += static_cast<float>(times);
      EXPECT_EQ(Sum(), expected);
    }
  }
  EXPECT_EQ(called_, 4);
}

TEST_F(StepGraphsTest, CallsEveryStepWhenDisabled) {
  StepGraphs graphs(device_, *world_[0].world, /*enabled=*/false);
  for (int step = 1; step <= 4; ++step) {
    ASSERT_TRUE(Add(graphs, 1).ok());
    EXPECT_EQ(Sum(), step);
  }
  EXPECT_EQ(called_, 4);
}

// Every later step makes the calls, also those of other keys.
TEST_F(StepGraphsTest, CallsEveryStepIfAStepCannotBeCaptured) {
  StepGraphs graphs(device_, *world_[0].world, /*enabled=*/true);
  for (int step = 0; step < 3; ++step) ASSERT_TRUE(Add(graphs, 1).ok());
  EXPECT_EQ(called_, 2);
  float sum = 0;
  const auto read = [&] {
    sum = Sum();
    return absl::OkStatus();
  };
  for (int step = 0; step < 3; ++step) {
    sum = 0;
    EXPECT_TRUE(graphs.Run({7}, read).ok());
    EXPECT_EQ(sum, 3);
  }
  EXPECT_FALSE(graphs.enabled());
  for (int step = 4; step <= 6; ++step) {
    ASSERT_TRUE(Add(graphs, 1).ok());
    EXPECT_EQ(Sum(), step);
    EXPECT_EQ(called_, step - 1);
  }
}

TEST_F(StepGraphsTest, ReturnsErrorsOfTheCalls) {
  StepGraphs graphs(device_, *world_[0].world, /*enabled=*/true);
  const auto fail = [] { return absl::DataLossError("gone"); };
  for (int step = 0; step < 3; ++step) {
    EXPECT_EQ(graphs.Run({8}, fail).code(), absl::StatusCode::kDataLoss);
  }
}

// A device whose captures contain nothing.
class EmptyCaptures final : public kernels::HostMemoryDevice {
 public:
  explicit EmptyCaptures(bool captures) : captures_(captures) {}

  int launches() const { return launches_; }
  std::string name() const override { return "empty"; }
  const kernels::KernelTable& kernels() const override { return kernels::CpuKernels(); }
  absl::StatusOr<std::unique_ptr<kernels::Convolution>> MakeConvolution(
      const kernels::ConvolutionShape&, const kernels::ConvolutionOptions&) override {
    return absl::UnimplementedError("");
  }
  absl::Status StartCapture() override { return absl::OkStatus(); }
  absl::StatusOr<std::unique_ptr<kernels::DeviceGraph>> FinishCapture() override {
    class Graph final : public kernels::DeviceGraph {
     public:
      explicit Graph(int& launches) : launches_(launches) {}
      void Launch() override { ++launches_; }

     private:
      int& launches_;
    };
    if (!captures_) return absl::InternalError("not captured");
    return std::make_unique<Graph>(launches_);
  }

 private:
  const bool captures_;
  int launches_ = 0;
};

// A rank that has captured the step does not launch the graph if another rank has not.
TEST(StepGraphsWorldTest, RanksAgreeBeforeTheFirstLaunch) {
  for (const uint32_t failing : {0u, 1u, 2u}) {  // 2: none
    SCOPED_TRACE(failing);
    const std::vector<ProcessGroups> world = MakeLoopbackWorld(2);
    std::vector<std::thread> ranks;
    for (uint32_t rank = 0; rank < 2; ++rank) {
      ranks.emplace_back([&, rank] {
        EmptyCaptures device(/*captures=*/rank != failing);
        StepGraphs graphs(device, *world[rank].world, /*enabled=*/true);
        int called = 0;
        const auto call = [&called] {
          ++called;
          return absl::OkStatus();
        };
        for (int step = 0; step < 4; ++step) EXPECT_TRUE(graphs.Run({1}, call).ok());
        EXPECT_EQ(device.launches(), failing == 2 ? 3 : 0);
        EXPECT_EQ(called, failing == 2 ? 2 : 5);  // the second step calls twice
      });
    }
    for (std::thread& rank : ranks) rank.join();
  }
}

// A device that has failed cannot run the calls without a graph either.
TEST(StepGraphsErrorTest, ReturnsTheErrorOfAFailedDevice) {
  kernels::FailingDevice& device = kernels::FailingDevice::Get();
  std::vector<ProcessGroups> world = MakeLoopbackWorld(1);
  StepGraphs graphs(device, *world[0].world, /*enabled=*/true);
  int called = 0;
  const auto zero = [&] {
    ++called;
    device.Zero(nullptr, 0);
    return absl::OkStatus();
  };
  device.FailAt(kernels::DeviceCall::kZero, 1);
  EXPECT_TRUE(graphs.Run({1}, zero).ok());
  EXPECT_EQ(graphs.Run({1}, zero), device.failure());
  EXPECT_EQ(called, 2);
  device.Succeed();
}

}  // namespace
}  // namespace muster::train
