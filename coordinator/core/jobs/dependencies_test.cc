#include "coordinator/core/jobs/dependencies.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::core {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(SettleTest, JudgesHowAJobEnded) {
  const struct {
    v1::JobState state;
    const char* ok;
    const char* failed;
  } cases[] = {
      {v1::SUCCEEDED, "", "after.failed: a ended as SUCCEEDED"},
      {v1::FAILED, "after.ok: a ended as FAILED", ""},
      {v1::CANCELLED, "after.ok: a ended as CANCELLED", ""},
      {v1::TIMED_OUT, "after.ok: a ended as TIMED_OUT", ""},
      {v1::JOB_STATE_UNSPECIFIED, "after.ok: a is no longer known",
       "after.failed: a is no longer known"},
  };
  for (const auto& [state, ok, failed] : cases) {
    After after{.ok = {"a", "b"}, .failed = {}, .any = {"a"}};
    EXPECT_EQ(Settle({"a", state}, after), ok);
    EXPECT_THAT(after.ok, ElementsAre("b"));
    EXPECT_THAT(after.any, IsEmpty());
    After other{.ok = {}, .failed = {"a"}, .any = {}};
    EXPECT_EQ(Settle({"a", state}, other), failed);
    EXPECT_TRUE(other.empty());
  }
}

TEST(DependencyTextTest, ListsWhatIsWaitedFor) {
  EXPECT_EQ(DependencyText({.ok = {"a"}, .failed = {"b"}, .any = {"c"}}),
            "waits for a to succeed, for b to fail, for c to end");
  EXPECT_EQ(DependencyText({.ok = {"a", "b", "c", "d", "e", "f", "g"}, .failed = {}, .any = {}}),
            "waits for a to succeed, for b to succeed, for c to succeed, for d to succeed, for e "
            "to succeed, and for 2 more");
}

TEST(DependentsTest, FindsTheJobsThatWait) {
  Job job;
  job.status.set_job_id("j");
  job.after = {.ok = {"a"}, .failed = {}, .any = {"b"}};
  Dependents dependents;
  dependents.Add(job);
  EXPECT_THAT(dependents.Targets(), ElementsAre("a", "b"));
  EXPECT_THAT(dependents.Take("a"), ElementsAre(JobId("j")));
  EXPECT_THAT(dependents.Take("a"), IsEmpty());
  dependents.Remove(job);
  EXPECT_THAT(dependents.Targets(), IsEmpty());
}

}  // namespace
}  // namespace muster::core
