#include "common/time/deadline.h"

#include "gtest/gtest.h"

namespace muster {
namespace {

SteadyTime now;
SteadyTime TestClock() { return now; }

TEST(Deadline, PassesWhenItsClockHasAdvancedByTheTimeout) {
  now = SteadyTime(absl::Seconds(100));
  const Deadline deadline(absl::Seconds(10), TestClock);
  EXPECT_FALSE(deadline.passed());
  EXPECT_EQ(deadline.left(), absl::Seconds(10));
  now = SteadyTime(absl::Seconds(109));
  EXPECT_FALSE(deadline.passed());
  EXPECT_EQ(deadline.left(), absl::Seconds(1));
  now = SteadyTime(absl::Seconds(110));
  EXPECT_TRUE(deadline.passed());
  now = SteadyTime(absl::Seconds(200));
  EXPECT_TRUE(deadline.passed());
  EXPECT_EQ(deadline.left(), absl::ZeroDuration());
}

TEST(Deadline, InfiniteTimeoutNeverPasses) {
  const Deadline deadline(absl::InfiniteDuration());
  EXPECT_FALSE(deadline.passed());
  EXPECT_EQ(deadline.left(), absl::InfiniteDuration());
}

}  // namespace
}  // namespace muster
