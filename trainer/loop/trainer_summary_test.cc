// The summary of a training that was interrupted in any phase equals that of an undisturbed one.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/checkpoint/memory_checkpoint.h"
#include "trainer/loop/trainer_checkpoint_testing.h"

namespace muster::train {
namespace {

namespace fs = std::filesystem;

using ::testing::ElementsAreArray;
using ::testing::SizeIs;

constexpr uint64_t kAnyStep = UINT64_MAX;

// Where a generation loses its ranks: at the first report of this phase after this step.
struct Moment {
  uint64_t generation;
  const char* phase;
  uint64_t step;
};

class TrainerSummaryTest : public TrainerCheckpointTest {
 protected:
  static constexpr int kSteps = 12;  // 5 per epoch

  v1::JobSpec RecordedSpec() const {
    v1::JobSpec job = Spec(kSteps);
    v1::TrainSpec& train = *job.mutable_train();
    train.set_record_losses(true);
    train.set_evaluate_every_epochs(1);
    train.mutable_checkpoint()->set_every_steps(4);
    return job;
  }

  v1::TrainSummary Undisturbed(const v1::JobSpec& spec) {
    memory_.reset();
    const Result whole = Train(spec, kWorld)[0];
    EXPECT_TRUE(whole.status.ok()) << whole.status;
    EXPECT_THAT(whole.summary.losses(), SizeIs(kSteps));
    EXPECT_THAT(whole.summary.evaluations(), SizeIs(3));
    fs::remove_all(checkpoints_.path());
    return whole.summary;
  }

  // Trains in generations that end at `moments`, and one that ends by itself.
  v1::TrainSummary Interrupted(const v1::JobSpec& spec, const std::vector<Moment>& moments) {
    for (const Moment& moment : moments) {
      std::atomic<bool> lost = false;
      Train(spec, kWorld, moment.generation, [&](uint32_t rank, const v1::Progress& progress) {
        const bool at_step = moment.step == kAnyStep || progress.step() == moment.step;
        if (rank != 0 || progress.phase() != moment.phase || !at_step || lost.exchange(true)) {
          return;
        }
        for (uint32_t other = 0; other < kWorld; ++other) {
          Abort(other, absl::UnavailableError("the rank was lost"));
        }
      });
      EXPECT_TRUE(lost) << "there was no such moment";
    }
    const Result rest = Train(spec, kWorld, moments.back().generation + 1)[0];
    EXPECT_TRUE(rest.status.ok()) << rest.status;
    fs::remove_all(checkpoints_.path());
    return rest.summary;
  }

  static void ExpectEqual(const v1::TrainSummary& actual, const v1::TrainSummary& expected) {
    EXPECT_EQ(actual.steps(), expected.steps());
    EXPECT_EQ(actual.first_loss_step(), 1);
    EXPECT_THAT(actual.losses(), ElementsAreArray(expected.losses()));
    EXPECT_EQ(actual.final_loss(), expected.final_loss());
    EXPECT_THAT(actual.step_end_seconds(), SizeIs(kSteps));
    EXPECT_TRUE(std::is_sorted(actual.step_end_seconds().begin(), actual.step_end_seconds().end()));
    EXPECT_GT(actual.evaluation_seconds(), 0);
    EXPECT_FALSE(actual.already_complete());
    EXPECT_EQ(actual.test_accuracy(), expected.test_accuracy());
    EXPECT_EQ(actual.test_loss(), expected.test_loss());
    ASSERT_THAT(actual.evaluations(), SizeIs(expected.evaluations_size()));
    for (int i = 0; i < expected.evaluations_size(); ++i) {
      const v1::Evaluation& evaluation = actual.evaluations(i);
      EXPECT_EQ(evaluation.step(), expected.evaluations(i).step());
      EXPECT_EQ(evaluation.test_loss(), expected.evaluations(i).test_loss());
      EXPECT_EQ(evaluation.test_accuracy(), expected.evaluations(i).test_accuracy());
      const float step_end = actual.step_end_seconds(static_cast<int>(evaluation.step()) - 1);
      EXPECT_GE(evaluation.training_seconds() + 1e-4, step_end);
    }
  }

  static constexpr uint32_t kWorld = 2;
  data::TemporaryDirectory node_;
};

TEST_F(TrainerSummaryTest, CoversAllGenerations) {
  const v1::JobSpec plain = RecordedSpec();
  v1::JobSpec sharded = plain;
  sharded.mutable_train()->mutable_strategy()->set_shard_optimizer(true);
  v1::JobSpec pipeline = plain;
  pipeline.mutable_train()->mutable_strategy()->set_name("pipeline");
  pipeline.mutable_train()->mutable_strategy()->mutable_pipeline()->set_stages(kWorld);
  pipeline.mutable_train()->mutable_strategy()->mutable_pipeline()->add_cuts("3");
  v1::JobSpec best = plain;
  best.mutable_train()->mutable_checkpoint()->set_keep_best("test_loss");
  shards_ = true;
  const std::vector<std::vector<Moment>> interruptions = {
      {{1, "training", 7}, {2, "training", 9}},
      {{1, "training", 7}, {2, "training", 0}},  // before its first step
      {{1, "checkpointing", 4}},
      {{1, "evaluating", 5}},
      {{1, "evaluating", 10}, {2, "training", 11}},
      {{1, "evaluating", kSteps}},
      {{1, "evaluating", kSteps}, {2, "evaluating", kAnyStep}},  // no step is left
      {{1, "finished", kSteps}},
  };
  for (const v1::JobSpec& spec : {plain, sharded, pipeline, best}) {
    const v1::TrainSummary whole = Undisturbed(spec);
    for (const bool in_memory : {false, true}) {
      for (const std::vector<Moment>& moments : interruptions) {
        SCOPED_TRACE(absl::StrCat(spec.train().strategy().ShortDebugString(), " ",
                                  spec.train().checkpoint().keep_best(),
                                  in_memory ? " memory " : " ", moments.front().phase, " ",
                                  moments.front().step, " ", moments.size()));
        if (in_memory) memory_ = MemoryCheckpoints(node_.path() + "/job");
        ExpectEqual(Interrupted(spec, moments), whole);
        fs::remove_all(node_.path() + "/job");
        memory_.reset();
      }
    }
  }
}

// With a model that costs less than its input, every step waits for the loader.
TEST_F(TrainerSummaryTest, CountsStallsOfEarlierGenerations) {
  v1::JobSpec spec = RecordedSpec();
  v1::TrainSpec& train = *spec.mutable_train();
  train.mutable_model()->clear_name();
  train.mutable_model()->add_layers()->mutable_adaptive_avg_pool2d();
  train.mutable_model()->add_layers()->mutable_flatten();
  train.mutable_model()->add_layers()->mutable_linear();
  train.set_image_size(112);
  train.mutable_loader()->set_prefetch(1);
  double stall = 0;
  Train(spec, kWorld, 1, [&](uint32_t rank, const v1::Progress& progress) {
    if (rank != 0) return;
    stall = progress.stall_seconds();
    if (progress.phase() == "evaluating" && progress.step() == kSteps) {
      Abort(0, absl::UnavailableError("the rank was lost"));
    }
  });
  const v1::TrainSummary rest = Train(spec, kWorld, 2)[0].summary;
  EXPECT_EQ(rest.resumed_from_step(), kSteps);
  EXPECT_GT(stall, 0);
  EXPECT_NEAR(rest.stall_seconds(), stall, 1e-9);
}

}  // namespace
}  // namespace muster::train
