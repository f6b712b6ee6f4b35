#include "coordinator/service/loop/absence.h"

#include "gtest/gtest.h"

namespace muster::service {
namespace {

class AbsenceTest : public ::testing::Test {
 protected:
  // A turn that lasts for the sum of these.
  void Turn(absl::Duration cpu, absl::Duration idle, absl::Duration blocked,
            absl::Duration absent) {
    now_ = now_ + cpu + idle + blocked + absent;
    cpu_ += cpu;
    meter_.EndTurn(now_, cpu_, idle, blocked);
  }

  SteadyTime now_{absl::Hours(1)};
  absl::Duration cpu_ = absl::Seconds(7);
  AbsenceMeter meter_{now_, cpu_};
};

TEST_F(AbsenceTest, BusyLoopIsNotAbsent) {
  for (int i = 0; i < 1000; ++i) {
    Turn(absl::Milliseconds(300), absl::Seconds(1), absl::Seconds(3), absl::Milliseconds(199));
    EXPECT_EQ(meter_.TakeExtension(now_), absl::ZeroDuration());
  }
}

TEST_F(AbsenceTest, StoppedLoopGetsItsAbsenceAndTimeToCatchUp) {
  Turn(absl::Milliseconds(1), absl::Seconds(1), absl::ZeroDuration(), absl::Seconds(60));
  EXPECT_EQ(meter_.TakeExtension(now_), absl::Seconds(62));
  EXPECT_EQ(meter_.TakeExtension(now_), absl::ZeroDuration());
}

TEST_F(AbsenceTest, AddsUpAbsencesUntilDeadlineIsDue) {
  Turn(absl::ZeroDuration(), absl::ZeroDuration(), absl::ZeroDuration(), absl::Seconds(5));
  Turn(absl::ZeroDuration(), absl::ZeroDuration(), absl::ZeroDuration(), absl::Seconds(3));
  EXPECT_EQ(meter_.TakeExtension(now_), absl::Seconds(10));
}

// Under a load that stops the loop for 250 ms of each second, deadlines recede by what it lost and
// a tenth.
TEST_F(AbsenceTest, ExtensionsAreBounded) {
  absl::Duration extended;
  for (int i = 0; i < 1000; ++i) {
    Turn(absl::Milliseconds(700), absl::Milliseconds(50), absl::ZeroDuration(),
         absl::Milliseconds(250));
    extended += meter_.TakeExtension(now_);
  }
  EXPECT_LE(extended, absl::Seconds(250 + 100));
}

}  // namespace
}  // namespace muster::service
