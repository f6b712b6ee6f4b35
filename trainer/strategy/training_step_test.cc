// What a whole step allocates, and what of it is called again. What it computes is trainer_test's
// to see, through the trainer.
#include "trainer/strategy/training_step.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "common/testing/allocations.h"
#include "gtest/gtest.h"
#include "kernels/testing/recording_device.h"
#include "spec/spec.h"
#include "trainer/data/loader.h"
#include "trainer/data/testing.h"
#include "trainer/loop/data_options.h"
#include "trainer/loop/spec_plan.h"
#include "trainer/loop/testing.h"
#include "trainer/loop/training_setup.h"

namespace muster::train {
namespace {

class TrainingStepTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kSteps = 64;
  static constexpr uint64_t kWarmup = 6;

  void SetUp() override { data::WriteSyntheticDataset(data_.path(), 100, 10); }

  // Allocations of kSteps steps of a world of one after some steps before, with batches of two
  // sizes, and those of the same collectives alone.
  struct Counts {
    int64_t steps = 0;
    int64_t collectives = 0;
    absl::Duration plan;  // spent by the plan in calls of kernels
  };
  Counts Count(const std::function<void(v1::TrainSpec&)>& change) {
    v1::JobSpec job;
    v1::TrainSpec& spec = *job.mutable_train();
    spec.mutable_model()->set_name("small_cnn");
    spec.mutable_model()->set_dropout(0.1);
    spec.mutable_dataset()->set_name("mnist");
    spec.mutable_dataset()->set_path(data_.path());
    spec.set_max_steps(kWarmup + kSteps);
    spec.set_global_batch(8);  // and of 4 at the end of an epoch
    spec.mutable_optimizer()->set_learning_rate(0.01);
    spec.mutable_optimizer()->set_momentum(0.9);
    spec.mutable_ema()->set_decay(0.9);
    spec.mutable_augment()->mutable_random_erasing();
    spec.mutable_strategy()->set_first_bucket_bytes(4096);
    change(spec);
    spec::ApplyDefaults(job);

    auto prepared = Prepare(job, 1, "", {device_});
    EXPECT_TRUE(prepared.ok()) << prepared.status();
    TrainingSetup& preparation = **prepared;
    const auto group = MakeLoopbackGroup(1);
    collectives::Communicator& communicator = *group[0];
    ModelState state(preparation.plan.get(), preparation.optimizer.get(), /*averages=*/true);
    StepParts parts;
    parts.spec = &preparation.spec;
    parts.plan = preparation.plan.get();
    parts.optimizer = preparation.optimizer.get();
    parts.schedule = &preparation.schedule;
    parts.state = &state;
    parts.communicators.world = &communicator;
    parts.precision = preparation.precision;
    parts.max_rows = preparation.max_rows;
    auto step = TrainingStep::Create(parts, preparation.training->info());
    EXPECT_TRUE(step.ok()) << step.status();
    preparation.plan->Initialize(1);

    // One loader for the full batches and one that comes to the short one at once.
    data::LoaderOptions loading;
    loading.transform = TrainingTransformOf(spec, preparation.training->info());
    loading.views = ViewsOf(spec.objective());
    loading.end_step = 1;
    const auto full =
        data::Loader::ForTraining(preparation.training.get(), preparation.steps, loading);
    loading.first_step = preparation.steps.steps_per_epoch() - 1;
    loading.end_step = loading.first_step + 1;
    const auto last =
        data::Loader::ForTraining(preparation.training.get(), preparation.steps, loading);
    const data::Batch* const batches[] = {*full->Next(), *last->Next()};
    EXPECT_GT(batches[0]->rows, batches[1]->rows);

    Counts counts;
    for (uint64_t i = 0; i < kWarmup + kSteps; ++i) {
      if (i == kWarmup) {
        counts.plan = -preparation.plan->kernel_time();
        counts.steps = -Allocations();
      }
      StepTimes times;
      const absl::Status run = (*step)->Run(*batches[i % 2], i, times);
      EXPECT_TRUE(run.ok()) << run;
      const auto outcome = (*step)->TakeOutcome(/*wait=*/true);
      EXPECT_TRUE(outcome.ok() && outcome->has_value()) << outcome.status();
    }
    counts.steps += Allocations();
    counts.plan += preparation.plan->kernel_time();

    const uint64_t collectives = kSteps * (*step)->collectives();
    std::vector<double> values(1);
    counts.collectives = -Allocations();
    for (uint64_t i = 0; i < collectives; ++i) {
      EXPECT_TRUE(communicator
                      .AllReduce(values.data(), values.data(), 1, collectives::DataType::kFloat64,
                                 collectives::ReduceOp::kSum)
                      ->Wait()
                      .ok());
    }
    counts.collectives += Allocations();
    EXPECT_EQ(counts.collectives > 0, collectives > 0);
    return counts;
  }

  // The queue of a communicator takes memory for many operations at a time.
  static constexpr int64_t kQueueBlocks = 8;

  kernels::Device* device_ = &kernels::CpuDevice();
  data::TemporaryDirectory data_;
};

TEST_F(TrainingStepTest, ASteadyStepAllocatesNothing) {
  const Counts counts = Count([](v1::TrainSpec&) {});
  EXPECT_LE(counts.steps, counts.collectives + kQueueBlocks);
}

TEST_F(TrainingStepTest, NorWithClippingAccumulationAndAdamW) {
  const Counts counts = Count([](v1::TrainSpec& spec) {
    spec.set_accumulation_steps(2);
    spec.mutable_optimizer()->Clear();
    spec.mutable_optimizer()->set_name("adamw");
    spec.mutable_optimizer()->set_learning_rate(0.001);
    spec.mutable_optimizer()->set_clip_norm(1);
  });
  EXPECT_LE(counts.steps, counts.collectives + kQueueBlocks);
}

TEST_F(TrainingStepTest, NorInLowPrecision) {
  const Counts counts = Count([](v1::TrainSpec& spec) {
    spec.set_precision("O2");
    spec.mutable_mixed_precision()->set_dtype("float16");
  });
  EXPECT_LE(counts.steps, counts.collectives + kQueueBlocks);
}

TEST_F(TrainingStepTest, NorInAResNetWithStochasticDepth) {
  const Counts counts = Count([](v1::TrainSpec& spec) {
    spec.mutable_model()->Clear();
    spec.mutable_model()->set_name("resnet18");
    spec.mutable_model()->set_stochastic_depth(0.5);
  });
  EXPECT_LE(counts.steps, counts.collectives + kQueueBlocks);
}

// Once for each of the two sizes of batches, and the update.
TEST_F(TrainingStepTest, WhereCallsAreRecordedNoneIsMadeAgain) {
  const auto in_parts = [](v1::TrainSpec& spec) {
    spec.mutable_model()->Clear();
    spec.mutable_model()->set_name("mlp");
    spec.set_accumulation_steps(2);
    spec.mutable_optimizer()->set_clip_norm(1);
  };
  EXPECT_GT(Count(in_parts).plan, absl::ZeroDuration());
  device_ = &kernels::RecordingDevice();
  EXPECT_EQ(Count(in_parts).plan, absl::ZeroDuration());
}

}  // namespace
}  // namespace muster::train
