// Dependencies between jobs in the whole core, with restarts of the coordinator in between.
#include <string>

#include "absl/strings/str_cat.h"
#include "coordinator/core/testing/harness.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::core::testing {
namespace {

using ::testing::HasSubstr;

v1::JobSpec After(const std::string& ok, const std::string& failed = "",
                  const std::string& any = "") {
  v1::JobSpec spec = MakeCommandSpec(1);
  if (!ok.empty()) spec.mutable_after()->add_ok(ok);
  if (!failed.empty()) spec.mutable_after()->add_failed(failed);
  if (!any.empty()) spec.mutable_after()->add_any(any);
  return spec;
}

void RunToEnd(Harness& h, const std::string& job, int exit_code = 0) {
  h.BringUp(job);
  h.ExitAll(job, ExitWith(exit_code));
}

TEST(DependenciesTest, JobStartsWhenTheOthersHaveSucceeded) {
  Harness h;
  h.Join("n1", 4);
  const std::string first = h.Submit(MakeCommandSpec(1));
  const std::string second = h.Submit(After(first));
  const std::string third = h.Submit(After(second, "", first));
  EXPECT_EQ(h.State(second), v1::QUEUED);
  EXPECT_EQ(h.Get(second).reason(), "Dependency");
  EXPECT_EQ(h.Get(second).message(), absl::StrCat("waits for ", first, " to succeed"));
  EXPECT_EQ(h.Get(second).queue_position(), 0u);
  h.BringUp(first);
  ASSERT_EQ(h.Get(third).waits_size(), 1);
  EXPECT_EQ(h.Get(third).waits(0).what(), "dependency");
  EXPECT_EQ(h.Get(third).waits(0).missing(0).reason(),
            absl::StrCat("job ", second, " has to succeed and is QUEUED"));
  EXPECT_EQ(h.Get(third).waits(0).missing(1).reason(),
            absl::StrCat("job ", first, " has to end and is RUNNING"));
  h.Restart();
  h.Join("n1", 4);
  h.ReportPhaseOfAll(first, v1::STARTED);
  h.ExitAll(first, ExitWith(0));
  EXPECT_EQ(h.State(second), v1::STARTING);
  EXPECT_EQ(h.Get(third).reason(), "Dependency");
  RunToEnd(h, second);
  EXPECT_EQ(h.State(third), v1::STARTING);
}

TEST(DependenciesTest, FailureCascades) {
  Harness h;
  h.Join("n1", 4);
  v1::JobSpec fails = MakeCommandSpec(1);
  fails.mutable_restart()->set_max(0);
  const std::string first = h.Submit(fails);
  const std::string second = h.Submit(After(first));
  const std::string third = h.Submit(After(second));
  const std::string cleanup = h.Submit(After("", first));
  const std::string always = h.Submit(After("", "", third));
  ASSERT_TRUE(h.Hold(third).ok());
  RunToEnd(h, first, /*exit_code=*/3);
  ASSERT_EQ(h.State(first), v1::FAILED);
  EXPECT_EQ(h.State(second), v1::FAILED);
  EXPECT_EQ(h.Get(second).reason(), "DependencyFailed");
  EXPECT_EQ(h.Get(second).message(), absl::StrCat("after.ok: ", first, " ended as FAILED"));
  EXPECT_EQ(h.State(third), v1::FAILED);  // also when it is held
  EXPECT_EQ(h.State(cleanup), v1::STARTING);
  EXPECT_EQ(h.State(always), v1::STARTING);
}

TEST(DependenciesTest, JobThatMustFailEndsTheOtherWhenItSucceeds) {
  Harness h;
  h.Join("n1", 4);
  const std::string first = h.Submit(MakeCommandSpec(1));
  const std::string cleanup = h.Submit(After("", first));
  RunToEnd(h, first);
  EXPECT_EQ(h.State(cleanup), v1::FAILED);
  EXPECT_EQ(h.Get(cleanup).message(), absl::StrCat("after.failed: ", first, " ended as SUCCEEDED"));
}

TEST(DependenciesTest, CountsHowAJobEndedThatHasEndedBefore) {
  Harness h;
  h.Join("n1", 4);
  const std::string good = h.Submit(MakeCommandSpec(1));
  RunToEnd(h, good);
  const std::string bad = h.Submit(MakeCommandSpec(1));
  ASSERT_TRUE(h.Cancel(bad).ok());
  h.ExitAll(bad, KilledBy(15));
  EXPECT_EQ(h.State(h.Submit(After(good, bad))), v1::STARTING);
  const std::string never = h.Submit(After(bad));
  EXPECT_EQ(h.State(never), v1::FAILED);
  EXPECT_EQ(h.Get(never).message(), absl::StrCat("after.ok: ", bad, " ended as CANCELLED"));
}

TEST(DependenciesTest, RemovedJobCountsAsItEnded) {
  Options options = Harness::DefaultOptions();
  options.keep_jobs_for = absl::Hours(1);
  Harness h(options);
  h.Join("n1", 1);
  const std::string first = h.Submit(MakeCommandSpec(1));
  const std::string other = h.Submit(MakeCommandSpec(1));
  const std::string last = h.Submit(After(first, "", other));
  RunToEnd(h, first);
  h.Run(absl::Hours(3), {"n1"});
  ASSERT_TRUE(absl::IsNotFound(h.core().ResolveJob(first).status()));
  EXPECT_EQ(h.Get(last).reason(), "Dependency");
  h.Restart();
  h.Join("n1", 1);
  ASSERT_TRUE(h.Cancel(other).ok());
  h.ExitAll(other, KilledBy(15));
  EXPECT_EQ(h.State(last), v1::STARTING);
}

TEST(DependenciesTest, ArrayEndsWhenAllOfItsTasksHave) {
  Harness h;
  h.Join("n1", 4);
  const std::string array = h.SubmitArray(MakeCommandSpec(1), 2);
  const std::string ok = h.Submit(After(array));
  const std::string task = h.Submit(After(absl::StrCat(array, "-0")));
  RunToEnd(h, absl::StrCat(array, "-0"));
  EXPECT_EQ(h.State(task), v1::STARTING);
  EXPECT_EQ(h.State(ok), v1::QUEUED);
  h.Restart();
  h.Join("n1", 4);
  EXPECT_EQ(h.Get(ok).reason(), "Dependency");
  ASSERT_TRUE(h.CancelArray(array).ok());
  h.ExitAll(absl::StrCat(array, "-1"), KilledBy(15));
  EXPECT_EQ(h.State(ok), v1::FAILED);
  EXPECT_EQ(h.Get(ok).message(), absl::StrCat("after.ok: ", array, " ended as CANCELLED"));
}

TEST(DependenciesTest, AnArrayMayDepend) {
  Harness h;
  h.Join("n1", 4);
  const std::string first = h.Submit(MakeCommandSpec(1));
  const std::string array = h.SubmitArray(After(first), 3, /*concurrency=*/2);
  EXPECT_EQ(h.Get(absl::StrCat(array, "-2")).reason(), "Dependency");
  RunToEnd(h, first);
  EXPECT_EQ(h.State(absl::StrCat(array, "-0")), v1::STARTING);
  EXPECT_EQ(h.State(absl::StrCat(array, "-1")), v1::STARTING);
  EXPECT_EQ(h.Get(absl::StrCat(array, "-2")).reason(), "ArrayLimit");
}

TEST(DependenciesTest, ReleaseDoesNotSkipDependencies) {
  Harness h;
  h.Join("n1", 4);
  const std::string first = h.Submit(MakeCommandSpec(1));
  const std::string second = h.Submit(After(first));
  ASSERT_TRUE(h.Hold(second).ok());
  ASSERT_TRUE(h.Release(second).ok());
  EXPECT_EQ(h.Get(second).reason(), "Dependency");
  ASSERT_TRUE(h.Hold(second).ok());
  RunToEnd(h, first);
  EXPECT_EQ(h.State(second), v1::HELD);
  ASSERT_TRUE(h.Release(second).ok());
  EXPECT_EQ(h.State(second), v1::STARTING);
}

TEST(DependenciesTest, UnknownAndAmbiguousJobsAreErrors) {
  Harness h;
  v1::JobSpec spec = MakeCommandSpec(1);
  spec.set_name("job");
  h.Submit(spec);
  h.Submit(spec);
  const absl::Status unknown = h.TrySubmit(After("nothing")).status();
  EXPECT_TRUE(absl::IsNotFound(unknown));
  EXPECT_THAT(std::string(unknown.message()), HasSubstr("after.ok: no job nothing"));
  const absl::Status ambiguous = h.TrySubmit(After("", "", "job")).status();
  EXPECT_TRUE(absl::IsInvalidArgument(ambiguous));
  EXPECT_THAT(std::string(ambiguous.message()), HasSubstr("after.any: job job is ambiguous"));
}

TEST(DependenciesTest, LongChainsEndInOneStep) {
  Harness h;
  const std::string first = h.Submit(MakeCommandSpec(1));
  std::string last = first;
  for (int i = 0; i < 200; ++i) last = h.Submit(After(last));
  ASSERT_TRUE(h.Cancel(first).ok());
  EXPECT_EQ(h.State(last), v1::FAILED);
}

}  // namespace
}  // namespace muster::core::testing
