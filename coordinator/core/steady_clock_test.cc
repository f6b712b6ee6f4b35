#include "coordinator/core/steady_clock.h"

#include "gtest/gtest.h"

namespace muster::core {
namespace {

constexpr absl::Duration kYear = absl::Hours(365 * 24);

class SteadyClockTest : public ::testing::Test {
 protected:
  // Commits at `machine_`, stops, and starts again `downtime` later; returns by how much the clock
  // has advanced.
  absl::Duration Restart(absl::Duration downtime, absl::Duration wall_step,
                         const std::string& boot_id) {
    SteadyClock before("boot-1");
    before.Continue({}, machine_);
    const SteadyTime stopped = before.At(machine_).steady;
    v1::CommitRecord commit;
    before.Note(before.At(machine_), commit);
    const SteadyTime up = boot_id == "boot-1" ? machine_.steady + downtime : SteadyTime();
    const Time restarted{up, machine_.wall + downtime + wall_step};
    SteadyClock after(boot_id);
    after.Continue(commit, restarted);
    const SteadyTime now = after.At(restarted).steady;
    EXPECT_EQ(after.OnMachine(now), restarted.steady);
    return now - stopped;
  }

  const Time machine_{SteadyTime(absl::Hours(5)), absl::FromUnixSeconds(1'700'000'000)};
};

TEST_F(SteadyClockTest, BeginsAtWallTime) {
  SteadyClock clock("boot-1");
  clock.Continue({}, machine_);
  EXPECT_EQ(ToStored(clock.At(machine_).steady).seconds(), 1'700'000'000);
  EXPECT_EQ(clock.OnMachine(SteadyTime::Infinite()), SteadyTime::Infinite());
}

TEST_F(SteadyClockTest, WallClockDoesNotCountInSameBoot) {
  for (const absl::Duration step :
       {absl::ZeroDuration(), absl::Hours(1), -absl::Hours(1), 10 * kYear, -10 * kYear}) {
    EXPECT_EQ(Restart(absl::Minutes(3), step, "boot-1"), absl::Minutes(3)) << step;
  }
}

TEST_F(SteadyClockTest, WallClockBridgesRebootWithinBounds) {
  EXPECT_EQ(Restart(absl::Minutes(3), absl::ZeroDuration(), "boot-2"), absl::Minutes(3));
  EXPECT_EQ(Restart(absl::Minutes(3), -10 * kYear, "boot-2"), absl::ZeroDuration());
  EXPECT_EQ(Restart(absl::Minutes(3), 10 * kYear, "boot-2"), kLongestDowntime);
  EXPECT_EQ(Restart(absl::Minutes(3), absl::ZeroDuration(), ""), absl::Minutes(3));
}

}  // namespace
}  // namespace muster::core
