#include "coordinator/service/loop/checkpoint_ages.h"

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::service {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

SteadyTime At(int seconds) { return SteadyTime(absl::Seconds(seconds)); }

class CheckpointAgesTest : public ::testing::Test {
 protected:
  CheckpointAgesTest() {
    job_.set_job_id("job-1");
    job_.set_state(v1::RUNNING);
    job_.set_generation(1);
    job_.mutable_spec()->mutable_train();
  }

  v1::Job job_;
  CheckpointAges ages_;
};

TEST_F(CheckpointAgesTest, CountsFromTheGenerationUntilTheFirstCheckpoint) {
  ages_.Note(job_, At(10));
  job_.mutable_progress()->set_step(5);
  ages_.Note(job_, At(20));
  EXPECT_THAT(ages_.Since(), ElementsAre(Pair("job-1", At(10))));
  job_.mutable_checkpoint()->set_step(5);
  ages_.Note(job_, At(30));
  ages_.Note(job_, At(40));
  EXPECT_THAT(ages_.Since(), ElementsAre(Pair("job-1", At(30))));
  job_.set_generation(2);
  ages_.Note(job_, At(50));
  EXPECT_THAT(ages_.Since(), ElementsAre(Pair("job-1", At(50))));
}

TEST_F(CheckpointAgesTest, HasRunningTrainJobsOnly) {
  ages_.Note(job_, At(10));
  job_.set_state(v1::QUEUED);
  ages_.Note(job_, At(20));
  EXPECT_THAT(ages_.Since(), IsEmpty());
  job_.set_state(v1::RUNNING);
  ages_.Note(job_, At(30));
  EXPECT_THAT(ages_.Since(), ElementsAre(Pair("job-1", At(30))));
  ages_.Forget("job-1");
  EXPECT_THAT(ages_.Since(), IsEmpty());
  job_.mutable_spec()->clear_train();
  ages_.Note(job_, At(40));
  EXPECT_THAT(ages_.Since(), IsEmpty());
}

}  // namespace
}  // namespace muster::service
