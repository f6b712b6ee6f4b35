#include "common/time/file_clock.h"

#include "gtest/gtest.h"

namespace muster {
namespace {

TEST(FileClock, WallClockThatIsSetMakesNoFileOlder) {
  const Time start{SteadyTime(absl::Hours(1)), absl::FromUnixSeconds(1'700'000'000)};
  const FileClock clock(start);
  const absl::Duration year = absl::Hours(365 * 24);
  const SteadyTime later = start.steady + absl::Hours(2);
  const absl::Time expected = start.wall + absl::Hours(2);
  EXPECT_EQ(clock.At({later, expected}), expected);
  EXPECT_EQ(clock.At({later, expected + 10 * year}), expected);
  // Files written from now on have dates of the clock that was set back.
  EXPECT_EQ(clock.At({later, expected - 10 * year}), expected - 10 * year);
}

}  // namespace
}  // namespace muster
