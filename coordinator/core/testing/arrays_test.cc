// Arrays of jobs in the whole core, with restarts of the coordinator in between.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/core/testing/harness.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::core::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

std::string Task(const std::string& array, uint32_t index) {
  return absl::StrCat(array, "-", index);
}

// Indices of the tasks in this state.
std::vector<uint32_t> Tasks(const Harness& h, const std::string& array, v1::JobState state) {
  std::vector<uint32_t> indices;
  for (uint32_t i = 0; i < h.GetArray(array).count(); ++i) {
    if (h.State(Task(array, i)) == state) indices.push_back(i);
  }
  return indices;
}

void RunToEnd(Harness& h, const std::string& job, int exit_code = 0) {
  h.BringUp(job);
  h.ExitAll(job, ExitWith(exit_code));
}

TEST(ArraysTest, TasksAreJobsOfTheirOwn) {
  Harness h;
  const std::string array = h.SubmitArray(MakeCommandSpec(1), 3);
  const v1::Job task = h.Get(Task(array, 2));
  EXPECT_EQ(task.array_id(), array);
  EXPECT_EQ(task.array_index(), 2u);
  EXPECT_EQ(task.array_count(), 3u);
  EXPECT_FALSE(task.spec().has_array());
  EXPECT_EQ(h.GetArray(array).state(), v1::QUEUED);
  EXPECT_EQ(h.GetArray(array).count(), 3u);
  EXPECT_THAT(h.GetArray(array).tasks(), UnorderedElementsAre(Pair("QUEUED", 3)));
  h.Restart();
  EXPECT_THAT(h.GetArray(array).tasks(), UnorderedElementsAre(Pair("QUEUED", 3)));
}

TEST(ArraysTest, LaunchesSayWhichTaskItIs) {
  Harness h;
  h.Join("n1");
  const std::string array = h.SubmitArray(MakeCommandSpec(1), 2);
  RunToEnd(h, Task(array, 0));
  const v1::Job task = h.Get(Task(array, 1));
  ASSERT_EQ(task.state(), v1::STARTING);
  h.Restart();
  const Effects effects = h.Join("n1");
  const v1::CoordinatorMessage* const message =
      FindSent(effects, h.session("n1"), v1::CoordinatorMessage::kLaunch);
  ASSERT_NE(message, nullptr);
  EXPECT_EQ(message->launch().array_id(), array);
  EXPECT_EQ(message->launch().array_index(), 1u);
  EXPECT_EQ(message->launch().array_count(), 2u);
}

TEST(ArraysTest, RunsAtMostTheLimitLowestIndexFirst) {
  Harness h;
  h.Join("n1", /*slots=*/8);
  const std::string array = h.SubmitArray(MakeCommandSpec(1), 5, /*concurrency=*/2);
  EXPECT_THAT(Tasks(h, array, v1::STARTING), ElementsAre(0, 1));
  const v1::Job waiting = h.Get(Task(array, 2));
  EXPECT_EQ(waiting.reason(), "ArrayLimit");
  ASSERT_EQ(waiting.waits_size(), 1);
  EXPECT_EQ(waiting.waits(0).what(), "array");
  EXPECT_EQ(waiting.waits(0).missing(0).reason(),
            absl::StrCat("array ", array, " runs 2 of at most 2 tasks"));
  h.Restart();
  h.Join("n1", 8);
  EXPECT_EQ(h.State(Task(array, 2)), v1::QUEUED);
  RunToEnd(h, Task(array, 1));
  EXPECT_THAT(Tasks(h, array, v1::STARTING), ElementsAre(0, 2));
  // A place that is given up by cancelling goes to the next task, too.
  ASSERT_TRUE(h.Cancel(Task(array, 3)).ok());
  RunToEnd(h, Task(array, 0));
  EXPECT_THAT(Tasks(h, array, v1::STARTING), ElementsAre(2, 4));
  EXPECT_EQ(h.GetArray(array).state(), v1::RUNNING);
  RunToEnd(h, Task(array, 2));
  RunToEnd(h, Task(array, 4));
  EXPECT_EQ(h.GetArray(array).state(), v1::CANCELLED);
  EXPECT_TRUE(h.GetArray(array).has_finish_time());
  EXPECT_THAT(h.GetArray(array).tasks(),
              UnorderedElementsAre(Pair("SUCCEEDED", 4), Pair("CANCELLED", 1)));
}

TEST(ArraysTest, HeldTaskGivesUpItsPlace) {
  Harness h;
  const std::string array = h.SubmitArray(MakeCommandSpec(1), 3, /*concurrency=*/1);
  ASSERT_TRUE(h.Hold(Task(array, 0)).ok());
  EXPECT_EQ(h.Get(Task(array, 1)).reason(), "WaitingForResources");
  ASSERT_TRUE(h.Release(Task(array, 0)).ok());
  EXPECT_EQ(h.Get(Task(array, 0)).reason(), "ArrayLimit");
  h.Join("n1", 4);
  EXPECT_THAT(Tasks(h, array, v1::STARTING), ElementsAre(1));
  RunToEnd(h, Task(array, 1));
  EXPECT_THAT(Tasks(h, array, v1::STARTING), ElementsAre(0));
}

TEST(ArraysTest, RestartedTaskKeepsItsPlace) {
  Harness h;
  h.Join("n1", 4);
  v1::JobSpec spec = MakeCommandSpec(1);
  spec.mutable_restart()->set_max(1);
  const std::string array = h.SubmitArray(spec, 3, /*concurrency=*/1);
  RunToEnd(h, Task(array, 0), /*exit_code=*/1);
  EXPECT_EQ(h.Get(Task(array, 0)).generation(), 2u);
  EXPECT_THAT(Tasks(h, array, v1::STARTING), ElementsAre(0));
  EXPECT_THAT(Tasks(h, array, v1::QUEUED), ElementsAre(1, 2));
}

TEST(ArraysTest, CancelArrayIsIdempotent) {
  Harness h;
  h.Join("n1", 1);
  const std::string array = h.SubmitArray(MakeCommandSpec(1), 4, /*concurrency=*/2);
  h.BringUp(Task(array, 0));
  ASSERT_TRUE(h.CancelArray(array).ok());
  EXPECT_THAT(Tasks(h, array, v1::STOPPING), ElementsAre(0));
  EXPECT_THAT(Tasks(h, array, v1::CANCELLED), ElementsAre(1, 2, 3));
  h.ExitAll(Task(array, 0), KilledBy(15));
  EXPECT_EQ(h.GetArray(array).state(), v1::CANCELLED);
  EXPECT_TRUE(h.CancelArray(array).ok());
  EXPECT_TRUE(absl::IsNotFound(h.CancelArray("nothing").status()));
}

TEST(ArraysTest, IdempotencyKeyReturnsTheArray) {
  Harness h;
  const std::string array = h.SubmitArray(MakeCommandSpec(1), 3, 0, "key");
  EXPECT_EQ(h.SubmitArray(MakeCommandSpec(1), 3, 0, "key"), array);
  h.Restart();
  EXPECT_EQ(h.SubmitArray(MakeCommandSpec(1), 3, 0, "key"), array);
}

TEST(ArraysTest, NamesOfArraysAreNotNamesOfJobs) {
  Harness h;
  v1::JobSpec spec = MakeCommandSpec(1);
  spec.set_name("job");
  const std::string array = h.SubmitArray(spec, 3);
  EXPECT_EQ(h.core().ResolveJob(Task(array, 1))->value(), Task(array, 1));
  for (const std::string& name : {array, std::string("job"), std::string("jo")}) {
    EXPECT_EQ(*h.core().ResolveArray(name), array);
    EXPECT_EQ(
        h.core().ResolveJob(name).status().message(),
        absl::StrCat(name, " is an array of 3 tasks; name one of its tasks, as in ", array, "-0"));
  }
  EXPECT_THAT(std::string(h.core().ResolveArray(Task(array, 1)).status().message()),
              HasSubstr(absl::StrCat("is a task of array ", array)));
  const std::string job = h.Submit(spec);
  EXPECT_EQ(
      h.core().ResolveJob("job").status().message(),
      absl::StrCat("job job is ambiguous: it matches ", job, ", ", array, "; give more of the id"));
  EXPECT_EQ(*h.core().ResolveArray("job"), array);
  EXPECT_THAT(std::string(h.core().ResolveArray(job).status().message()),
              HasSubstr("is a job and not an array of jobs"));
}

TEST(ArraysTest, TaskIsFoundByTheNameOfItsArray) {
  Harness h;
  v1::JobSpec spec = MakeCommandSpec(1);
  spec.set_name("job");
  const std::string array = h.SubmitArray(spec, 12);
  const auto resolve = [&](const std::string& name) { return h.core().ResolveJob(name); };
  EXPECT_EQ(resolve("job-0")->value(), Task(array, 0));
  EXPECT_EQ(resolve("job-1")->value(), Task(array, 1)) << "and not task 10 or 11";
  EXPECT_EQ(resolve("job-11")->value(), Task(array, 11));
  for (const std::string name : {"job-12", "job-", "job--1", "jo-0", "job-0x", "-0"}) {
    EXPECT_TRUE(absl::IsNotFound(resolve(name).status())) << name << ": " << resolve(name).status();
  }
  const std::string again = h.SubmitArray(spec, 2);
  EXPECT_EQ(resolve("job-3")->value(), Task(array, 3)) << "the other array has no such task";
  EXPECT_EQ(resolve("job-0").status().message(),
            absl::StrCat("job job-0 is ambiguous: it matches ", again, "-0, ", array,
                         "-0; give more of the id"));
}

TEST(ArraysTest, ListsArraysInPlaceOfTheirTasks) {
  Harness h;
  const std::string array = h.SubmitArray(MakeCommandSpec(1), 3);
  const std::string job = h.Submit(MakeCommandSpec(1));
  v1::ListJobsRequest request;
  EXPECT_EQ(h.core().ListJobs(request, h.now()).size(), 4u);
  request.set_collapse_arrays(true);
  const auto ids = [&] {
    std::vector<std::string> ids;
    for (const Core::Listed& listed : h.core().Select(request)) ids.push_back(listed.id);
    return ids;
  };
  EXPECT_THAT(ids(), ElementsAre(job, array)) << "newest first";
  ASSERT_TRUE(h.CancelArray(array).ok());
  EXPECT_THAT(ids(), ElementsAre(job));
  request.set_state(v1::CANCELLED);
  EXPECT_THAT(ids(), ElementsAre(array));
  request.Clear();
  request.set_array_id(array);
  request.set_include_finished(true);
  EXPECT_EQ(h.core().ListJobs(request, h.now()).size(), 3u);
  request.set_owner("alice");
  EXPECT_TRUE(h.core().ListJobs(request, h.now()).empty());
}

TEST(ArraysTest, KeepsTasksUntilTheArrayHasEnded) {
  Options options = Harness::DefaultOptions();
  options.keep_jobs_for = absl::Hours(1);
  Harness h(options);
  h.Join("n1");
  const std::string array = h.SubmitArray(MakeCommandSpec(1), 2);
  RunToEnd(h, Task(array, 0));
  ASSERT_TRUE(h.Hold(Task(array, 1)).ok() || h.State(Task(array, 1)) == v1::STARTING);
  h.Run(absl::Hours(3), {"n1"});
  EXPECT_EQ(h.State(Task(array, 0)), v1::SUCCEEDED);
  h.Restart();
  h.Join("n1");
  h.Run(absl::Minutes(1), {"n1"});
  EXPECT_EQ(h.State(Task(array, 0)), v1::SUCCEEDED);
  ASSERT_TRUE(h.CancelArray(array).ok());
  h.ExitAll(Task(array, 1), KilledBy(15));
  EXPECT_EQ(h.GetArray(array).state(), v1::CANCELLED);
  h.Run(absl::Hours(2), {"n1"});
  EXPECT_TRUE(h.GetArray(array).array_id().empty());
  EXPECT_TRUE(absl::IsNotFound(h.core().ResolveJob(Task(array, 0)).status()));
}

}  // namespace
}  // namespace muster::core::testing
