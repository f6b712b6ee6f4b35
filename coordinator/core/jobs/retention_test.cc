#include "coordinator/core/jobs/retention.h"

#include "gtest/gtest.h"

namespace muster::core {
namespace {

const SteadyTime kTime(absl::Hours(1));

TEST(RetentionTest, NothingIsDueWithoutFinishedJobs) {
  EXPECT_EQ(Retention(0, absl::ZeroDuration()).NextDue(), SteadyTime::Infinite());
}

TEST(RetentionTest, KeepsEveryJobForAMinute) {
  Retention retention(/*keep_jobs=*/0, absl::ZeroDuration());
  retention.AddFinished(kTime, JobId("a"), "alice");
  EXPECT_EQ(retention.NextDue(), kTime + absl::Minutes(1));
}

TEST(RetentionTest, OldestIsDueBeyondLimit) {
  Retention retention(/*keep_jobs=*/1, absl::Hours(1));
  retention.AddFinished(kTime + absl::Seconds(9), JobId("b"), "bob");
  EXPECT_EQ(retention.NextDue(), kTime + absl::Seconds(9) + absl::Hours(1));
  retention.AddFinished(kTime, JobId("a"), "alice");
  EXPECT_EQ(retention.Oldest(), JobId("a"));
  EXPECT_EQ(retention.NextDue(), kTime + absl::Minutes(1));
  retention.RemoveFinished(kTime, JobId("a"), "alice");
  EXPECT_EQ(retention.Oldest(), JobId("b"));
}

TEST(RetentionTest, EvictsOldestAfterAMinute) {
  Retention retention(/*keep_jobs=*/9, absl::InfiniteDuration());
  const SteadyTime due = kTime + absl::Minutes(1);
  EXPECT_EQ(retention.FindEvictable(due), nullptr);
  retention.AddFinished(kTime, JobId("b"), "alice");
  retention.AddFinished(kTime + absl::Seconds(9), JobId("a"), "bob");
  EXPECT_EQ(retention.FindEvictable("alice", due - absl::Nanoseconds(1)), nullptr);
  EXPECT_EQ(retention.FindEvictable(due - absl::Nanoseconds(1)), nullptr);
  EXPECT_EQ(*retention.FindEvictable("alice", due), JobId("b"));
  EXPECT_EQ(retention.FindEvictable("bob", due), nullptr);
  EXPECT_EQ(*retention.FindEvictable(due + absl::Hours(1)), JobId("b"));
  EXPECT_EQ(retention.FindEvictable("carol", due), nullptr);
  EXPECT_EQ(retention.Evictable(due), std::vector{JobId("b")});
  EXPECT_EQ(retention.Evictable(due + absl::Seconds(9)).size(), 2u);
}

TEST(RetentionTest, KeysOfDeletedJobsCountAsJobs) {
  Retention retention(/*keep_jobs=*/1, absl::InfiniteDuration());
  retention.AddForgotten(JobId("a"), {"job/a", "event/a/1"});
  retention.KeepKey(kTime, JobId("a"), {"alice", "nightly"});
  std::vector<store::Mutation> writes;
  EXPECT_EQ(retention.TakeDeletions(9, writes), 1u);
  EXPECT_EQ(writes[0].key, "event/a/1");
  EXPECT_FALSE(retention.HasForgotten());
  EXPECT_TRUE(retention.IsForgotten(JobId("a")));
  EXPECT_EQ(retention.FindEvictable(SteadyTime::Infinite()), nullptr);
  EXPECT_EQ(retention.NextDue(), SteadyTime::Infinite());
  retention.AddFinished(kTime + absl::Seconds(1), JobId("b"), "bob");
  EXPECT_EQ(retention.NextDue(), kTime + absl::Minutes(1));
  EXPECT_EQ(retention.Oldest(), JobId("a"));
  EXPECT_EQ(retention.TakeOldestKey(),
            std::make_pair(std::string("alice"), std::string("nightly")));
  EXPECT_FALSE(retention.IsForgotten(JobId("a")));
  EXPECT_EQ(retention.Oldest(), JobId("b"));
}

TEST(RetentionTest, DeletesJobsOwnKeyLast) {
  Retention retention(1, absl::Hours(1));
  retention.AddForgotten(JobId("a"), {"job/a", "event/a/1", "event/a/2"});
  std::vector<store::Mutation> writes;
  EXPECT_EQ(retention.TakeDeletions(2, writes), 2u);
  EXPECT_TRUE(retention.IsForgotten(JobId("a")));
  EXPECT_EQ(retention.TakeDeletions(2, writes), 1u);
  EXPECT_FALSE(retention.IsForgotten(JobId("a")));
  ASSERT_EQ(writes.size(), 3u);
  EXPECT_EQ(writes[0].key, "event/a/2");
  EXPECT_EQ(writes[2].key, "job/a");
  EXPECT_EQ(retention.TakeDeletions(2, writes), 0u);
}

}  // namespace
}  // namespace muster::core
