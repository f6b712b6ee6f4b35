#include "trainer/loop/step_windows.h"

#include "common/limits.h"
#include "gtest/gtest.h"

namespace muster::train {
namespace {

constexpr uint64_t kWarmup = 10;

class StepWindowsTest : public ::testing::Test {
 protected:
  bool Step(absl::Duration compute, absl::Duration input = absl::ZeroDuration()) {
    StepTimes times;
    times.step = absl::Milliseconds(50);
    times.kernels = compute;
    times.data_wait = input;
    return recorder_.Add(++step_, 32, times);
  }
  void WarmUp() {
    for (uint64_t i = 0; i < kWarmup; ++i) EXPECT_FALSE(Step(absl::Seconds(1)));
  }
  const v1::StepWindow& newest() const { return *recorder_.windows().windows().rbegin(); }

  StepWindowRecorder recorder_{/*stage=*/2, /*synchronous=*/true};
  uint64_t step_ = 0;
};

TEST_F(StepWindowsTest, ReportsMeansWithoutTheFirstSteps) {
  recorder_.SetLength(4);
  WarmUp();
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(Step(absl::Milliseconds(10), absl::Milliseconds(1)));
  EXPECT_TRUE(Step(absl::Milliseconds(30), absl::Milliseconds(5)));
  ASSERT_EQ(recorder_.windows().windows_size(), 1);
  EXPECT_EQ(recorder_.windows().stage(), 2u);
  EXPECT_EQ(newest().last_step(), kWarmup + 4);
  EXPECT_EQ(newest().steps(), 4u);
  EXPECT_FLOAT_EQ(newest().compute_seconds(), 0.015f);
  EXPECT_FLOAT_EQ(newest().input_seconds(), 0.002f);
  EXPECT_FLOAT_EQ(newest().step_seconds(), 0.05f);
  EXPECT_FLOAT_EQ(newest().samples(), 32);
}

TEST_F(StepWindowsTest, KeepsTheNewestWindows) {
  recorder_.SetLength(1);
  WarmUp();
  for (int i = 0; i < 3 * limits::kStepWindows; ++i) EXPECT_TRUE(Step(absl::Milliseconds(10)));
  ASSERT_EQ(recorder_.windows().windows_size(), limits::kStepWindows);
  EXPECT_EQ(newest().last_step(), step_);
  EXPECT_EQ(recorder_.windows().windows(0).last_step(), step_ - limits::kStepWindows + 1);
}

TEST_F(StepWindowsTest, RecordsNothingBeforeALengthIsKnown) {
  WarmUp();
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(Step(absl::Milliseconds(10)));
}

TEST_F(StepWindowsTest, BeginsAnewWithAnotherLengthOrAfterDiscard) {
  recorder_.SetLength(4);
  WarmUp();
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(Step(absl::Seconds(7)));
  recorder_.SetLength(2);
  EXPECT_FALSE(Step(absl::Milliseconds(10)));
  recorder_.SetLength(2);  // no change
  EXPECT_TRUE(Step(absl::Milliseconds(10)));
  EXPECT_FALSE(Step(absl::Seconds(7)));
  recorder_.Discard();
  EXPECT_FALSE(Step(absl::Milliseconds(10)));
  EXPECT_TRUE(Step(absl::Milliseconds(10)));
  for (const v1::StepWindow& window : recorder_.windows().windows()) {
    EXPECT_FLOAT_EQ(window.compute_seconds(), 0.01f) << window.last_step();
  }
}

TEST(AsynchronousStepWindowsTest, HaveNoComputeTime) {
  StepWindowRecorder recorder(0, /*synchronous=*/false);
  recorder.SetLength(1);
  StepTimes times;
  times.kernels = absl::Milliseconds(1);  // of launching the kernels
  times.data_wait = absl::Milliseconds(2);
  for (uint64_t step = 1; step <= kWarmup + 1; ++step) recorder.Add(step, 8, times);
  ASSERT_EQ(recorder.windows().windows_size(), 1);
  EXPECT_EQ(recorder.windows().windows(0).compute_seconds(), 0);
  EXPECT_FLOAT_EQ(recorder.windows().windows(0).input_seconds(), 0.002f);
}

}  // namespace
}  // namespace muster::train
