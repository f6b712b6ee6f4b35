#include "coordinator/core/scheduler/fair_share.h"

#include <cmath>

#include "gtest/gtest.h"

namespace muster::core {
namespace {

constexpr absl::Duration kHalfLife = absl::Hours(168);

SteadyTime At(absl::Duration since_start) { return SteadyTime(since_start); }

TEST(FairShareTest, UnknownOwnerHasUsedNothing) {
  const FairShare share(kHalfLife);
  EXPECT_EQ(share.Usage("alice", At(absl::Hours(1))), 0);
  EXPECT_EQ(share.RunningSlots("alice"), 0u);
}

TEST(FairShareTest, RunningSlotsAreChargedContinuously) {
  FairShare share(kHalfLife);
  share.OnStart("alice", 8, At(absl::ZeroDuration()));
  EXPECT_NEAR(share.Usage("alice", At(absl::Seconds(10))), 80, 0.01) << "decay is negligible";
  EXPECT_EQ(share.RunningSlots("alice"), 8u);
  // After many half-lives, use and decay are in balance.
  EXPECT_NEAR(share.Usage("alice", At(40 * kHalfLife)),
              8 * absl::ToDoubleSeconds(kHalfLife) / M_LN2, 1);
}

TEST(FairShareTest, UseIsHalvedAfterHalfLife) {
  FairShare share(kHalfLife);
  share.OnStart("alice", 4, At(absl::ZeroDuration()));
  share.OnEnd("alice", 4, At(absl::Seconds(100)));
  const double used = share.Usage("alice", At(absl::Seconds(100)));
  EXPECT_NEAR(used, 400, 0.1);
  EXPECT_NEAR(share.Usage("alice", At(absl::Seconds(100) + kHalfLife)), used / 2, 1e-6);
  EXPECT_EQ(share.RunningSlots("alice"), 0u);
}

// The closed form gives the same as small steps, wherever starts and ends divide the time.
TEST(FairShareTest, ClosedFormEqualsNumericalIntegral) {
  FairShare share(absl::Hours(1));
  share.OnStart("alice", 3, At(absl::ZeroDuration()));
  share.OnStart("alice", 5, At(absl::Minutes(20)));
  share.OnEnd("alice", 3, At(absl::Minutes(50)));
  double integral = 0;
  for (int second = 0; second < 7200; ++second) {
    const double slots = (second < 3000 ? 3 : 0) + (second >= 1200 ? 5 : 0);
    integral += slots * std::exp2(-(7200 - second - 0.5) / 3600);
  }
  EXPECT_NEAR(share.Usage("alice", At(absl::Hours(2))), integral, 0.01);
}

TEST(FairShareTest, RestoredUseDecaysFromItsTime) {
  FairShare share(kHalfLife);
  share.Restore("alice", 1000, At(-kHalfLife));
  EXPECT_NEAR(share.Usage("alice", At(absl::ZeroDuration())), 500, 1e-6);
  share.OnStart("alice", 2, At(absl::ZeroDuration()));
  EXPECT_NEAR(share.Usage("alice", At(absl::ZeroDuration())), 500, 1e-6);
}

// Times that go back charge nothing.
TEST(FairShareTest, EarlierTimeChargesNothing) {
  FairShare share(kHalfLife);
  share.OnStart("alice", 2, At(absl::Hours(1)));
  share.OnEnd("alice", 2, At(absl::Minutes(30)));
  EXPECT_EQ(share.Usage("alice", At(absl::Hours(2))), 0);
}

}  // namespace
}  // namespace muster::core
