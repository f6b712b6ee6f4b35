#include "coordinator/core/jobs/arrays.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::core {
namespace {

Job MakeTask(uint32_t index, uint32_t concurrency = 0, v1::JobState state = v1::QUEUED) {
  Job job;
  job.status.set_job_id(TaskId("a", index).value());
  job.status.set_array_id("a");
  job.status.set_array_index(index);
  job.status.set_array_count(3);
  job.status.set_state(state);
  job.array_concurrency = concurrency;
  return job;
}

v1::JobState StateOf(std::vector<v1::JobState> states) {
  Arrays arrays;
  for (size_t i = 0; i < states.size(); ++i) arrays.Add(MakeTask(i, 0, states[i]));
  return arrays.Find("a")->state();
}

TEST(ArraysTest, StateIsThatOfTheTasks) {
  EXPECT_EQ(StateOf({v1::QUEUED, v1::QUEUED}), v1::QUEUED);
  EXPECT_EQ(StateOf({v1::FAILED, v1::STARTING, v1::QUEUED}), v1::RUNNING);
  EXPECT_EQ(StateOf({v1::SUCCEEDED, v1::STOPPING}), v1::RUNNING);
  EXPECT_EQ(StateOf({v1::FAILED, v1::QUEUED, v1::HELD}), v1::QUEUED);
  EXPECT_EQ(StateOf({v1::SUCCEEDED, v1::HELD}), v1::HELD);
  EXPECT_EQ(StateOf({v1::SUCCEEDED, v1::SUCCEEDED}), v1::SUCCEEDED);
  EXPECT_EQ(StateOf({v1::SUCCEEDED, v1::TIMED_OUT, v1::FAILED}), v1::TIMED_OUT);
}

TEST(ArraysTest, GivesPlacesToTheLowestIndices) {
  Arrays arrays;
  std::vector<Job> tasks;
  for (uint32_t i = 0; i < 3; ++i) {
    tasks.push_back(MakeTask(i, /*concurrency=*/1));
    arrays.Add(tasks.back());
  }
  EXPECT_TRUE(arrays.TakePlace(tasks[1]));
  EXPECT_TRUE(arrays.TakePlace(tasks[1]));  // it has one
  EXPECT_FALSE(arrays.TakePlace(tasks[2]));
  EXPECT_FALSE(arrays.TakePlace(tasks[0]));
  EXPECT_EQ(arrays.WaitText(tasks[2]), "array a runs 1 of at most 1 task");
  EXPECT_EQ(arrays.WaitText(tasks[1]), "");
  EXPECT_EQ(arrays.Release(tasks[1]), TaskId("a", 0));
  EXPECT_TRUE(arrays.TakePlace(tasks[0]));
  EXPECT_EQ(arrays.Release(tasks[2]), std::nullopt);  // it only waited
}

TEST(ArraysTest, IgnoresJobsThatAreNoTasks) {
  Arrays arrays;
  Job job;
  job.status.set_job_id("b");
  arrays.Add(job);
  EXPECT_TRUE(arrays.all().empty());
  EXPECT_TRUE(arrays.TakePlace(job));
  EXPECT_EQ(arrays.Release(job), std::nullopt);
  EXPECT_EQ(arrays.OnTransition(job, v1::FAILED), nullptr);
  arrays.Remove(job);
}

TEST(ArraysTest, ReportsWhenTheLastTaskEnds) {
  Arrays arrays;
  Job first = MakeTask(0), second = MakeTask(1);
  arrays.Add(first);
  arrays.Add(second);
  EXPECT_EQ(arrays.OnTransition(first, v1::CANCELLED), nullptr);
  first.status.set_state(v1::CANCELLED);
  second.status.mutable_finish_time()->set_seconds(7);
  const JobArray* const ended = arrays.OnTransition(second, v1::FAILED);
  ASSERT_NE(ended, nullptr);
  EXPECT_EQ(ended->View().finish_time().seconds(), 7);
  second.status.set_state(v1::FAILED);
  arrays.Remove(first);
  EXPECT_EQ(arrays.Find("a")->state(), v1::FAILED);
  arrays.Remove(second);
  EXPECT_EQ(arrays.Find("a"), nullptr);
}

}  // namespace
}  // namespace muster::core
