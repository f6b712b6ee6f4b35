#include "coordinator/core/timers.h"

#include "gtest/gtest.h"

namespace muster::core {
namespace {

SteadyTime At(int seconds) { return SteadyTime(absl::Seconds(seconds)); }
const TimerKey kA{TimerKey::Kind::kLease, "a"};
const TimerKey kB{TimerKey::Kind::kLease, "b"};
const TimerKey kJob{TimerKey::Kind::kCause, "a"};

TEST(Timers, ReturnsEarliestFirst) {
  Timers timers;
  EXPECT_EQ(timers.Next(), SteadyTime::Infinite());
  timers.Set(kA, At(5));
  timers.Set(kB, At(3));
  timers.Set(kJob, At(9));
  EXPECT_EQ(timers.Next(), At(3));
  const std::vector<TimerKey> due = timers.TakeDue(At(5));
  ASSERT_EQ(due.size(), 2u);
  EXPECT_EQ(due[0].name, "b");
  EXPECT_EQ(due[1].name, "a");
  EXPECT_EQ(timers.Next(), At(9));
}

TEST(Timers, SetReplacesAndCancelRemoves) {
  Timers timers;
  timers.Set(kA, At(5));
  timers.Set(kA, At(7));
  EXPECT_TRUE(timers.TakeDue(At(6)).empty());
  EXPECT_EQ(timers.Get(kA), At(7));
  timers.Cancel(kA);
  timers.Cancel(kB);
  EXPECT_EQ(timers.Get(kA), std::nullopt);
  EXPECT_EQ(timers.Next(), SteadyTime::Infinite());
}

TEST(Timers, ExtendSilenceMovesDeadlinesOfMessagesOnly) {
  Timers timers;
  timers.Set(kA, At(5));
  timers.Set(kB, At(6));
  const TimerKey limit{TimerKey::Kind::kTimeLimit, "job"};
  timers.Set(limit, At(7));
  timers.ExtendSilence(absl::Seconds(10));
  const std::vector<TimerKey> due = timers.TakeDue(At(14));
  ASSERT_EQ(due.size(), 1u);
  EXPECT_EQ(due[0].kind, limit.kind);
  EXPECT_EQ(timers.TakeDue(At(16)).size(), 2u);
}

}  // namespace
}  // namespace muster::core
