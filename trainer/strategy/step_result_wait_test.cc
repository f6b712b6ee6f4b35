#include "trainer/strategy/step_result_wait.h"

#include <memory>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/loop/testing.h"

namespace muster::train {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kLong = absl::Minutes(5);

class StepResultWaitTest : public testing::Test {
 protected:
  absl::Status status() { return devices().status(); }
  collectives::Communicator& devices() { return *group_[0]; }

  const std::vector<std::unique_ptr<collectives::Communicator>> group_ = MakeLoopbackGroup(2);
};

TEST_F(StepResultWaitTest, ReturnsWhenResultIsKnown) {
  int looks = 0;
  const absl::Status waited =
      AwaitStepResult([&] { return ++looks == 5; }, [&] { return status(); }, devices(), kLong, 1);
  EXPECT_TRUE(waited.ok()) << waited;
  EXPECT_EQ(looks, 5);
  EXPECT_TRUE(status().ok());
}

// A peer that is alive but hangs: only the timeout ends the step.
TEST_F(StepResultWaitTest, AbortsDevicesAfterTimeout) {
  const absl::Status waited = AwaitStepResult([] { return false; }, [&] { return status(); },
                                              devices(), absl::Milliseconds(30), 12);
  EXPECT_TRUE(absl::IsDeadlineExceeded(waited)) << waited;
  EXPECT_THAT(std::string(waited.message()), HasSubstr("step 12 did not finish within 30ms"));
  EXPECT_EQ(status(), waited);
}

TEST_F(StepResultWaitTest, ReturnsErrorOfAbortedGroup) {
  const absl::Status reason = absl::AbortedError("the generation is over");
  std::thread aborts([&] { devices().Abort(reason); });
  const absl::Status waited =
      AwaitStepResult([] { return false; }, [&] { return status(); }, devices(), kLong, 1);
  aborts.join();
  EXPECT_EQ(waited, reason);
}

}  // namespace
}  // namespace muster::train
