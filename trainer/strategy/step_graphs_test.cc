#include "trainer/strategy/step_graphs.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/testing/capturing_device.h"

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
  kernels::DeviceMemory one_, sum_;
  int called_ = 0;
};

TEST_F(StepGraphsTest, CallsTwiceAndLaunchesFromThenOn) {
  StepGraphs graphs(device_, /*enabled=*/true);
  for (int step = 1; step <= 5; ++step) {
    ASSERT_TRUE(Add(graphs, 2).ok());
    EXPECT_EQ(Sum(), 2 * step);
  }
  EXPECT_EQ(called_, 2);
}

TEST_F(StepGraphsTest, CapturesOneGraphPerKey) {
  StepGraphs graphs(device_, /*enabled=*/true);
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
  StepGraphs graphs(device_, /*enabled=*/false);
  for (int step = 1; step <= 4; ++step) {
    ASSERT_TRUE(Add(graphs, 1).ok());
    EXPECT_EQ(Sum(), step);
  }
  EXPECT_EQ(called_, 4);
}

TEST_F(StepGraphsTest, ReturnsErrorForCallsThatCannotBeCaptured) {
  StepGraphs graphs(device_, /*enabled=*/true);
  const auto read = [&] {
    Sum();
    return absl::OkStatus();
  };
  EXPECT_TRUE(graphs.Run({7}, read).ok());
  EXPECT_THAT(std::string(graphs.Run({7}, read).message()), ::testing::HasSubstr("to the host"));
  // Errors of the calls are returned, and capturing works again afterwards.
  const auto fail = [] { return absl::DataLossError("gone"); };
  EXPECT_EQ(graphs.Run({8}, fail).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(graphs.Run({8}, fail).code(), absl::StatusCode::kDataLoss);
  for (int step = 0; step < 2; ++step) EXPECT_TRUE(Add(graphs, 1).ok());
  EXPECT_EQ(Sum(), 2);
}

}  // namespace
}  // namespace muster::train
