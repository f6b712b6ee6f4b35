// Tests memory allocations and graph capture of a step. trainer_test covers its results.
#include "trainer/strategy/ddp/step.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "collectives/communicator.h"
#include "common/testing/allocations.h"
#include "gtest/gtest.h"
#include "kernels/testing/capturing_device.h"
#include "spec/spec.h"
#include "trainer/data/loader.h"
#include "trainer/data/testing.h"
#include "trainer/loop/data_options.h"
#include "trainer/loop/spec_plan.h"
#include "trainer/loop/testing.h"
#include "trainer/loop/training_setup.h"

namespace muster::train {
namespace {

// ddp's step with access to its plan.
class MeasuredStep final : public DataParallelStrategy {
 public:
  MeasuredStep(const StrategyContext& context, nn::Plan* plan, std::unique_ptr<Optimizer> optimizer,
               ModelState state)
      : DataParallelStrategy(context, plan, std::move(optimizer), std::move(state), plan) {}
  absl::Status Build() { return DataParallelStrategy::Build(CreateReplicatedPath, nullptr); }
};

class StepTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kSteps = 64;
  static constexpr uint64_t kWarmup = 6;

  void SetUp() override { data::WriteSyntheticDataset(data_.path(), 100, 10); }

  // Allocations during kSteps steps of a world of one after a warm-up, with two batch sizes, and
  // allocations of the same number of collectives without a step.
  struct Counts {
    int64_t steps = 0;
    int64_t collectives = 0;
    absl::Duration plan;  // time in the plan's kernel calls
  };
  Counts Count(const std::function<void(v1::TrainSpec&)>& change) {
    v1::JobSpec job;
    v1::TrainSpec& spec = *job.mutable_train();
    spec.mutable_model()->set_name("small_cnn");
    spec.mutable_model()->set_dropout(0.1);
    spec.mutable_dataset()->set_name("mnist");
    spec.mutable_dataset()->set_path(data_.path());
    spec.set_max_steps(kWarmup + kSteps);
    spec.set_global_batch(8);  // the last batch of an epoch has 4
    spec.mutable_optimizer()->set_learning_rate(0.01);
    spec.mutable_optimizer()->set_momentum(0.9);
    spec.mutable_ema()->set_decay(0.9);
    spec.mutable_augment()->mutable_random_erasing();
    spec.mutable_strategy()->set_first_bucket_bytes(4096);
    change(spec);
    spec::ApplyDefaults(job);

    auto created = SetUpTraining(job, 1, "", {device_});
    EXPECT_TRUE(created.ok()) << created.status();
    TrainingSetup& setup = **created;
    const std::vector<ProcessGroups> groups = MakeLoopbackWorld(1);
    ModelSetup model;
    model.spec = &setup.spec;
    model.graph = *GraphOf(spec, setup.training->info());
    model.compiling = *CompileOptionsOf(job, 1);
    model.compiling.device = device_;
    model.precision = setup.precision;
    const auto plan = *nn::Compile(model.graph, model.compiling);
    StrategyContext context;
    context.spec = &setup.spec;
    context.schedule = &setup.schedule;
    context.dataset = &setup.training->info();
    context.groups = &groups[0];
    context.precision = setup.precision;
    context.max_samples = setup.max_samples;
    auto optimizer = *CreateOptimizer(model, *plan);
    auto state = *ModelState::Create(plan.get(), optimizer.get(), setup.spec.has_ema());
    MeasuredStep step(context, plan.get(), std::move(optimizer), std::move(state));
    const absl::Status built = step.Build();
    EXPECT_TRUE(built.ok()) << built;
    EXPECT_TRUE(step.InitializeState().ok());

    // One loader for the full batches and one that starts at the short batch.
    data::LoaderOptions loading;
    loading.transform = TrainingTransformOf(spec, setup.training->info());
    loading.views = ViewsOf(spec.objective());
    loading.end_step = 1;
    const auto full = data::Loader::ForTraining(setup.training.get(), setup.steps, loading);
    loading.first_step = setup.steps.steps_per_epoch() - 1;
    loading.end_step = loading.first_step + 1;
    const auto last = data::Loader::ForTraining(setup.training.get(), setup.steps, loading);
    const data::Batch* const batches[] = {*full->Next(), *last->Next()};
    EXPECT_GT(batches[0]->samples, batches[1]->samples);

    Counts counts;
    for (uint64_t i = 0; i < kWarmup + kSteps; ++i) {
      if (i == kWarmup) {
        counts.plan = -plan->kernel_time();
        counts.steps = -Allocations();
      }
      StepTimes times;
      const absl::Status run = step.Step(*batches[i % 2], i, times);
      EXPECT_TRUE(run.ok()) << run;
      const auto result = step.PollStepResult(/*wait=*/true);
      EXPECT_TRUE(result.ok() && result->has_value()) << result.status();
    }
    counts.steps += Allocations();
    counts.plan += plan->kernel_time();

    const uint64_t collectives = kSteps * step.collectives_per_step();
    std::vector<double> values(1);
    counts.collectives = -Allocations();
    for (uint64_t i = 0; i < collectives; ++i) {
      EXPECT_TRUE(groups[0]
                      .world
                      ->AllReduce(values.data(), values.data(), 1, collectives::DataType::kFloat64,
                                  collectives::ReduceOp::kSum)
                      ->Wait()
                      .ok());
    }
    counts.collectives += Allocations();
    EXPECT_EQ(counts.collectives > 0, collectives > 0);
    return counts;
  }

  // A communicator's queue allocates memory for many operations at a time.
  static constexpr int64_t kQueueBlocks = 8;

  kernels::Device* device_ = &kernels::CpuDevice();
  data::TemporaryDirectory data_;
};

TEST_F(StepTest, DoesNotAllocateInSteadyState) {
  const Counts counts = Count([](v1::TrainSpec&) {});
  EXPECT_LE(counts.steps, counts.collectives + kQueueBlocks);
}

TEST_F(StepTest, DoesNotAllocateWithClippingAccumulationAndAdamW) {
  const Counts counts = Count([](v1::TrainSpec& spec) {
    spec.set_accumulation_steps(2);
    spec.mutable_optimizer()->Clear();
    spec.mutable_optimizer()->set_name("adamw");
    spec.mutable_optimizer()->set_learning_rate(0.001);
    spec.mutable_optimizer()->set_clip_norm(1);
  });
  EXPECT_LE(counts.steps, counts.collectives + kQueueBlocks);
}

TEST_F(StepTest, DoesNotAllocateInLowPrecision) {
  const Counts counts = Count([](v1::TrainSpec& spec) {
    spec.set_precision("O2");
    spec.mutable_mixed_precision()->set_dtype("float16");
  });
  EXPECT_LE(counts.steps, counts.collectives + kQueueBlocks);
}

TEST_F(StepTest, DoesNotAllocateInResNetWithStochasticDepth) {
  const Counts counts = Count([](v1::TrainSpec& spec) {
    spec.mutable_model()->Clear();
    spec.mutable_model()->set_name("resnet18");
    spec.mutable_model()->set_stochastic_depth(0.5);
  });
  EXPECT_LE(counts.steps, counts.collectives + kQueueBlocks);
}

// Passes are captured once per batch size, and the update once.
TEST_F(StepTest, LaunchesCapturedPassesWithoutCallingThemAgain) {
  const auto accumulating = [](v1::TrainSpec& spec) {
    spec.mutable_model()->Clear();
    spec.mutable_model()->set_name("mlp");
    spec.set_accumulation_steps(2);
    spec.mutable_optimizer()->set_clip_norm(1);
  };
  EXPECT_GT(Count(accumulating).plan, absl::ZeroDuration());
  device_ = &kernels::CapturingDevice();
  EXPECT_EQ(Count(accumulating).plan, absl::ZeroDuration());
}

}  // namespace
}  // namespace muster::train
