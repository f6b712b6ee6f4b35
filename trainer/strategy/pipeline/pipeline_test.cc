// Expects pipelines, also several replicas of them, to train as one rank does.
#include "trainer/strategy/pipeline/pipeline.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/data/testing.h"
#include "trainer/strategy/testing.h"

namespace muster::train {
namespace {

class PipelineTest : public ::testing::Test {
 protected:
  void SetUp() override { data::WriteSyntheticDataset(data_.path(), 330, 50); }

  // Uses all features that need a reduction over stages or replicas.
  v1::JobSpec Spec(uint64_t steps) const {
    v1::JobSpec job = SmallTraining(data_.path(), steps);
    job.mutable_train()->mutable_optimizer()->set_clip_norm(0.5);
    job.mutable_train()->mutable_ema()->set_decay(0.8);
    job.mutable_train()->mutable_checkpoint()->set_every_steps(4);
    return job;
  }
  static v1::JobSpec Staged(v1::JobSpec job) {
    v1::StrategySpec& strategy = *job.mutable_train()->mutable_strategy();
    strategy.set_name("pipeline");
    strategy.mutable_pipeline()->set_stages(2);
    strategy.mutable_pipeline()->set_schedule("1f1b");
    strategy.mutable_pipeline()->set_micro_batches(3);
    return job;
  }
  TrainerOptions Checkpoints(uint64_t generation) const {
    TrainerOptions options;
    options.job_id = "job";
    options.generation = generation;
    options.checkpoints =
        *CheckpointDirectory::OpenForWriting({checkpoints_.path(), "job", generation, 10});
    return options;
  }

  data::TemporaryDirectory data_, checkpoints_;
};

TEST_F(PipelineTest, TrainsLikeOneRank) {
  const v1::TrainSummary one = TrainRanks(Spec(10), {})[0];
  for (const std::string backend : {"loopback", "shm", "gloo"}) {
    for (const uint32_t ranks : {2u, 4u}) {
      SCOPED_TRACE(backend + " " + std::to_string(ranks));
      const v1::TrainSummary staged =
          TrainRanks(Staged(Spec(10)), {.backend = backend, .ranks_on_node = {ranks}})[0];
      ExpectLossesNear(staged, one, 1e-3);
      EXPECT_EQ(staged.parameters(), one.parameters());
      EXPECT_NEAR(staged.test_loss(), one.test_loss(), 1e-3 * one.test_loss());
      ASSERT_EQ(staged.stages_size(), 2);
      EXPECT_EQ(staged.stages(1).stage(), 1u);
      EXPECT_GT(staged.stages(0).forward_seconds(), 0);
      EXPECT_GT(staged.stages(0).boundary_bytes(), 0u);
      EXPECT_GT(staged.bubble_ratio(), 0);
      EXPECT_LT(staged.bubble_ratio(), 1);
      EXPECT_EQ(staged.devices_size(), static_cast<int>(ranks));
    }
  }
}

// Checkpoints contain the whole model: a pipeline resumes from one rank's checkpoint and vice
// versa.
TEST_F(PipelineTest, CheckpointsAreIndependentOfStages) {
  const v1::TrainSummary whole = TrainRanks(Spec(8), {.options = Checkpoints(1)})[0];
  TestWorld world{.ranks_on_node = {2}, .options = Checkpoints(2)};
  world.options.resume = ResumePoint{.rank = 0, .step = 4, .name = "step-00000004.g1"};
  const v1::TrainSummary staged = TrainRanks(Staged(Spec(8)), world)[0];
  EXPECT_EQ(staged.resumed_from_step(), 4u);
  ASSERT_EQ(staged.losses_size(), 8);
  for (int i = 0; i < 8; ++i) {
    EXPECT_NEAR(staged.losses(i), whole.losses(i), 1e-3 * whole.losses(i));
  }
  // Resumes one rank from the pipeline's checkpoint.
  world = {.options = Checkpoints(3)};
  world.options.resume = ResumePoint{.rank = 0, .step = 8, .name = "step-00000008.g2"};
  const v1::TrainSummary again = TrainRanks(Spec(8), world)[0];
  EXPECT_EQ(again.weights_digest(), staged.weights_digest());
  EXPECT_NEAR(again.test_loss(), staged.test_loss(), 1e-6);
}

}  // namespace
}  // namespace muster::train
