#include "trainer/loop/trainer.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/testing/capturing_device.h"
#include "kernels/testing/guarded_device.h"
#include "kernels/testing/limited_device.h"
#include "spec/spec.h"
#include "trainer/data/jpeg_testing.h"
#include "trainer/data/testing.h"
#include "trainer/exit_code.h"
#include "trainer/loop/testing.h"

namespace muster::train {
namespace {

namespace fs = std::filesystem;

struct Result {
  absl::Status status;
  v1::TrainSummary summary;
  std::vector<v1::Progress> progress;
};

class TrainerTest : public ::testing::Test {
 protected:
  // 1210 training samples: with a batch size of 250, every fifth batch has 210 samples.
  void SetUp() override { data::WriteSyntheticDataset(data_.path(), 1210, 103); }

  v1::JobSpec Spec(uint64_t steps) const {
    v1::JobSpec job;
    v1::TrainSpec& spec = *job.mutable_train();
    spec.mutable_model()->set_name("mlp");
    spec.mutable_dataset()->set_name("fashion_mnist");
    spec.mutable_dataset()->set_path(data_.path());
    spec.set_max_steps(steps);
    spec.set_global_batch(250);
    spec.mutable_optimizer()->set_name("sgd");
    spec.mutable_optimizer()->set_learning_rate(0.01);
    spec.mutable_optimizer()->set_momentum(0.9);
    spec.mutable_optimizer()->set_weight_decay(5e-4);
    spec.mutable_strategy()->set_first_bucket_bytes(4096);
    spec.set_seed(1);
    spec.set_record_losses(true);
    return job;
  }

  // Combines batch norm, dropout, augmentation and a schedule.
  v1::JobSpec FullSpec(uint64_t steps) const {
    v1::JobSpec job = Spec(steps);
    v1::TrainSpec& spec = *job.mutable_train();
    spec.mutable_model()->set_name("small_cnn");
    spec.mutable_model()->set_batch_norm(true);
    spec.mutable_model()->set_dropout(0.2);
    spec.set_global_batch(50);
    spec.mutable_schedule()->set_name("cosine");
    spec.mutable_schedule()->set_warmup_epochs(0.1);
    spec.mutable_augment()->set_crop_padding(2);
    spec.mutable_augment()->set_flip(true);
    spec.mutable_checkpoint()->set_every_steps(5);
    return job;
  }

  // Features that FullSpec does not use: stochastic depth, all augmentations, gradient
  // accumulation, a moving average of the weights, synchronized batch norm.
  v1::JobSpec RichSpec(uint64_t steps) const {
    v1::JobSpec job = FullSpec(steps);
    v1::TrainSpec& spec = *job.mutable_train();
    v1::ModelSpec& model = *spec.mutable_model();
    model.Clear();
    const auto convolution = [](v1::LayerSpec& layer) {
      layer.mutable_conv2d()->set_out_channels(16);
      layer.mutable_conv2d()->set_kernel(3);
      layer.mutable_conv2d()->set_padding(1);
      layer.mutable_conv2d()->set_bias(false);
    };
    convolution(*model.add_layers());
    model.add_layers()->mutable_batch_norm2d();
    for (int block = 0; block < 3; ++block) {
      v1::ResidualSpec& residual = *model.add_layers()->mutable_residual();
      convolution(*residual.add_layers());
      residual.add_layers()->mutable_batch_norm2d();
      residual.set_drop_probability(0.4);
      model.add_layers()->mutable_relu();
    }
    model.add_layers()->mutable_adaptive_avg_pool2d();
    model.add_layers()->mutable_flatten();
    model.add_layers()->mutable_dropout()->set_probability(0.2);
    model.add_layers()->mutable_linear();
    spec.set_sync_batch_norm(true);
    spec.set_accumulation_steps(2);
    spec.mutable_ema()->set_decay(0.8);
    spec.mutable_augment()->set_crop_padding(0);
    spec.mutable_augment()->mutable_random_resized_crop()->set_min_scale(0.3);
    spec.mutable_augment()->mutable_random_erasing()->set_probability(0.5);
    v1::OptimizerSpec& optimizer = *spec.mutable_optimizer();
    optimizer.Clear();
    optimizer.set_name("adamw");
    optimizer.set_learning_rate(0.01);
    optimizer.set_beta1(0.9);
    optimizer.set_beta2(0.999);
    optimizer.set_epsilon(1e-8);
    optimizer.set_weight_decay(0.01);
    optimizer.set_clip_norm(1);
    return job;
  }

  // Returns the job in low precision.
  static v1::JobSpec Mixed(v1::JobSpec job, const std::string& level, const std::string& dtype) {
    job.mutable_train()->set_precision(level);
    job.mutable_train()->mutable_mixed_precision()->set_dtype(dtype);
    return job;
  }
  // Returns the job in float16 with an initial loss scale that overflows and that grows again soon.
  static v1::JobSpec Overflowing(v1::JobSpec job, const std::string& level) {
    job = Mixed(std::move(job), level, "float16");
    v1::LossScaleSpec& scale =
        *job.mutable_train()->mutable_mixed_precision()->mutable_loss_scale();
    scale.set_initial(1 << 24);
    scale.set_growth_interval(4);
    return job;
  }

  CheckpointOptions Checkpoints(uint64_t generation) const {
    return {checkpoints_.path(), "job", generation, 10};
  }

  // Trains with one thread per rank. `at_progress` is called for each report, with its rank.
  using AtProgress = std::function<void(uint32_t, const v1::Progress&)>;
  std::vector<Result> Train(v1::JobSpec spec, uint32_t world, TrainerOptions options = {},
                            const AtProgress& at_progress = nullptr) {
    spec::ApplyDefaults(spec);
    groups_ = MakeLoopbackWorld(world);
    std::vector<Result> results(world);
    std::vector<std::thread> threads;
    for (uint32_t rank = 0; rank < world; ++rank) {
      threads.emplace_back([&, rank] {
        Result& result = results[rank];
        auto setup = SetUpTraining(spec, world, "", {device_});
        result.status = setup.status();
        if (!result.status.ok()) return;
        TrainerOptions own = options;
        own.progress = [&result, rank, &at_progress](const v1::Progress& progress) {
          result.progress.push_back(progress);
          if (at_progress != nullptr) at_progress(rank, progress);
        };
        Trainer trainer(*std::move(setup), &groups_[rank], std::move(own));
        auto summary = trainer.Run();
        result.status = summary.status();
        if (summary.ok()) result.summary = *std::move(summary);
      });
    }
    for (std::thread& thread : threads) thread.join();
    return results;
  }

  v1::TrainSummary TrainOk(const v1::JobSpec& spec, uint32_t world, TrainerOptions options = {}) {
    std::vector<Result> results = Train(spec, world, std::move(options));
    for (const Result& result : results) {
      EXPECT_TRUE(result.status.ok()) << result.status;
      EXPECT_EQ(result.summary.weights_digest(), results[0].summary.weights_digest());
    }
    return results[0].summary;
  }

  TrainerOptions WithCheckpoints(uint64_t generation) const {
    TrainerOptions options;
    options.job_id = "job";
    options.generation = generation;
    auto directory = CheckpointDirectory::OpenForWriting(Checkpoints(generation));
    EXPECT_TRUE(directory.ok()) << directory.status();
    options.checkpoints = *std::move(directory);
    return options;
  }

  std::string Folder(uint64_t step, uint64_t generation = 1) const {
    return checkpoints_.path() + "/" + FormatFolderName({step, generation});
  }
  std::string ModelPath(uint64_t step) const { return Folder(step) + "/model.safetensors"; }
  // Bytes of all state in a checkpoint: model, optimizer and, if any, moving average.
  static std::string StateBytes(const std::string& folder) {
    std::string bytes;
    for (const char* name : {"model", "optimizer", "ema"}) {
      std::ifstream in(absl::StrCat(folder, "/", name, ".safetensors"), std::ios::binary);
      bytes.append(std::istreambuf_iterator<char>(in), {});
    }
    return bytes;
  }
  // Expects a training resumed in a new generation after step 5 of 13, in mid-epoch, to equal an
  // uninterrupted one.
  void ExpectResumedEqualsUninterrupted(const v1::JobSpec& spec, uint32_t world);

  kernels::Device* device_ = &kernels::CpuDevice();
  data::TemporaryDirectory data_;
  data::TemporaryDirectory checkpoints_;
  std::vector<ProcessGroups> groups_;
};

TEST_F(TrainerTest, LossesAgreeOnAnyNumberOfRanks) {
  v1::JobSpec spec = Spec(50);
  spec.mutable_train()->mutable_model()->set_name("small_cnn");
  spec.mutable_train()->mutable_model()->set_batch_norm(false);
  const v1::TrainSummary one = TrainOk(spec, 1);
  ASSERT_EQ(one.losses_size(), 50);
  EXPECT_EQ(one.parameters(), 421642);  // 421,834 without the batch norms of 32 and 64 channels
  EXPECT_LT(one.losses(49), 0.8 * one.losses(0));
  for (const uint32_t world : {2u, 4u}) {
    const v1::TrainSummary many = TrainOk(spec, world);
    ASSERT_EQ(many.losses_size(), 50);
    for (int i = 0; i < 50; ++i) {
      EXPECT_NEAR(many.losses(i), one.losses(i), 1e-4 * one.losses(i))
          << "step " << i << " on " << world << " ranks";
    }
    EXPECT_NEAR(many.test_accuracy(), one.test_accuracy(), 0.011);  // one of 103 samples
  }
}

// Emulates a GPU's memory. Results must be bit-identical to the CPU's, also after resuming.
TEST_F(TrainerTest, TrainsInDeviceMemory) {
  v1::JobSpec contrastive = RichSpec(6);
  contrastive.mutable_train()->mutable_objective()->set_name("nt_xent");
  contrastive.mutable_train()->mutable_objective()->set_temperature(0.5);
  v1::JobSpec lars = FullSpec(6);
  lars.mutable_train()->mutable_optimizer()->set_name("lars");
  for (const v1::JobSpec& spec :
       {FullSpec(6), RichSpec(6), lars, contrastive, Mixed(FullSpec(6), "O2", "bfloat16"),
        Mixed(RichSpec(6), "O3", "bfloat16"), Overflowing(RichSpec(6), "O2")}) {
    SCOPED_TRACE(spec.ShortDebugString());
    TrainerOptions options;
    options.canonical_layout = spec.train().has_ema();  // covers both layouts
    device_ = &kernels::CpuDevice();
    const v1::TrainSummary expected = TrainOk(spec, 1, options);
    device_ = &kernels::GuardedDevice();
    const v1::TrainSummary actual = TrainOk(spec, 1, options);
    EXPECT_EQ(actual.weights_digest(), expected.weights_digest());
    // The processes reduce the loss as a float.
    EXPECT_THAT(actual.losses(), ::testing::Pointwise(::testing::FloatEq(), expected.losses()));
    EXPECT_EQ(actual.test_loss(), expected.test_loss());
    EXPECT_EQ(actual.skipped_steps(), expected.skipped_steps());
  }
  ExpectResumedEqualsUninterrupted(RichSpec(13), 1);
}

// Captured steps must give bit-identical weights to steps computed call by call, also with two
// batch sizes. The loss differs slightly, because it is not reduced as a float.
TEST_F(TrainerTest, CapturedStepsEqualDirectSteps) {
  const v1::JobSpec full_and_short_batches = Spec(15);
  v1::JobSpec lars = FullSpec(5);
  lars.mutable_train()->mutable_optimizer()->set_name("lars");
  v1::JobSpec rich = RichSpec(5);
  rich.mutable_train()->set_sync_batch_norm(false);
  const v1::JobSpec synchronized = RichSpec(4);  // not captured
  v1::JobSpec contrastive = rich;
  contrastive.mutable_train()->mutable_objective()->set_name("nt_xent");
  contrastive.mutable_train()->mutable_objective()->set_temperature(0.5);
  for (const v1::JobSpec& spec : {full_and_short_batches, lars, rich, synchronized, contrastive,
                                  Mixed(rich, "O3", "bfloat16")}) {
    SCOPED_TRACE(spec.ShortDebugString());
    device_ = &kernels::CpuDevice();
    const v1::TrainSummary expected = TrainOk(spec, 1);
    device_ = &kernels::CapturingDevice();
    const v1::TrainSummary actual = TrainOk(spec, 1);
    EXPECT_EQ(actual.weights_digest(), expected.weights_digest());
    ASSERT_EQ(actual.losses_size(), expected.losses_size());
    for (int i = 0; i < actual.losses_size(); ++i) {
      EXPECT_NEAR(actual.losses(i), expected.losses(i), 1e-6 * expected.losses(i)) << i;
    }
    EXPECT_EQ(actual.test_loss(), expected.test_loss());
  }
}

TEST_F(TrainerTest, SkipsCapturedStepsThatOverflow) {
  v1::JobSpec rich = RichSpec(8);
  rich.mutable_train()->set_sync_batch_norm(false);
  const v1::JobSpec spec = Overflowing(rich, "O2");
  const v1::TrainSummary expected = TrainOk(spec, 1);
  device_ = &kernels::CapturingDevice();
  const v1::TrainSummary actual = TrainOk(spec, 1);
  EXPECT_GT(actual.skipped_steps(), 1);
  EXPECT_LT(actual.skipped_steps(), 8);
  EXPECT_EQ(actual.skipped_steps(), expected.skipped_steps());
  EXPECT_EQ(actual.loss_scale(), expected.loss_scale());
  EXPECT_EQ(actual.weights_digest(), expected.weights_digest());
}

// The result is available late, and nothing of later steps is saved.
TEST_F(TrainerTest, ReportsDivergenceOfQueuedSteps) {
  device_ = &kernels::CapturingDevice();
  v1::JobSpec spec = Spec(100);
  spec.mutable_train()->mutable_optimizer()->set_learning_rate(1e20);
  spec.mutable_train()->mutable_checkpoint()->set_every_steps(3);
  const Result result = Train(spec, 1, WithCheckpoints(1))[0];
  EXPECT_EQ(ExitCodeOf(result.status), kExitDiverged) << result.status;
  EXPECT_THAT(std::string(result.status.message()), ::testing::HasSubstr("the loss of step"));
  EXPECT_FALSE(fs::exists(ModelPath(3)));
}

TEST_F(TrainerTest, ReturnsExhaustionOfDeviceMemory) {
  v1::JobSpec lars = Mixed(Spec(1), "O2", "float16");
  lars.mutable_train()->mutable_optimizer()->set_name("lars");
  v1::JobSpec rich = RichSpec(1);
  rich.mutable_train()->mutable_objective()->set_name("nt_xent");
  rich.mutable_train()->mutable_objective()->set_temperature(0.5);
  for (const v1::JobSpec& spec : {lars, Mixed(rich, "O3", "bfloat16")}) {
    SCOPED_TRACE(spec.ShortDebugString());
    kernels::LimitedDevice device;
    device_ = &device;
    EXPECT_GT(AllocationsNeeded(device, [&] { return Train(spec, 1)[0].status; }), 10);
  }
}

TEST_F(TrainerTest, AbortEndsWorldOfOne) {
  device_ = &kernels::CapturingDevice();
  const Result result =
      Train(Spec(1'000'000), 1, {}, [this](uint32_t, const v1::Progress& progress) {
        if (progress.step() > 0) groups_[0].world->Abort(absl::AbortedError("enough"));
      })[0];
  EXPECT_TRUE(absl::IsAborted(result.status)) << result.status;
}

TEST_F(TrainerTest, LearnsAndReportsProgress) {
  const std::vector<Result> results = Train(Spec(40), 2);
  ASSERT_TRUE(results[0].status.ok()) << results[0].status;
  const v1::TrainSummary& summary = results[0].summary;
  EXPECT_EQ(summary.steps(), 40);
  EXPECT_DOUBLE_EQ(summary.epochs(), 8);
  EXPECT_GT(summary.test_accuracy(), 0.9);
  EXPECT_GT(summary.images_per_second(), 0);
  EXPECT_GT(summary.peak_memory_bytes(), 1 << 20);
  EXPECT_EQ(summary.first_loss_step(), 1);
  EXPECT_FLOAT_EQ(summary.final_loss(), summary.losses(39));
  EXPECT_TRUE(summary.has_first_step_time());

  const v1::Progress& last = results[0].progress.back();
  EXPECT_EQ(last.phase(), "finished");
  EXPECT_EQ(last.total_steps(), 40);
  EXPECT_EQ(last.test_accuracy(), summary.test_accuracy());
  ASSERT_EQ(summary.evaluations_size(), 1);
  EXPECT_EQ(summary.evaluations(0).step(), 40);
  EXPECT_EQ(summary.evaluations(0).test_accuracy(), summary.test_accuracy());
  EXPECT_EQ(summary.evaluations(0).test_loss(), summary.test_loss());
  EXPECT_GT(summary.evaluations(0).training_seconds(), 0);
  EXPECT_GT(last.collective_sequence(), 40 * 2);
  // The first step is reported as soon as it completes.
  const auto first = std::find_if(results[0].progress.begin(), results[0].progress.end(),
                                  [](const v1::Progress& p) { return p.step() > 0; });
  ASSERT_NE(first, results[0].progress.end());
  EXPECT_EQ(first->step(), 1);
  EXPECT_TRUE(first->has_first_step_time());
}

TEST_F(TrainerTest, RepeatedTrainingIsBitIdentical) {
  for (const uint32_t world : {1u, 3u}) {
    const v1::TrainSummary first = TrainOk(FullSpec(10), world);
    const v1::TrainSummary second = TrainOk(FullSpec(10), world);
    EXPECT_EQ(first.weights_digest(), second.weights_digest());
    EXPECT_THAT(second.losses(), ::testing::ElementsAreArray(first.losses()));
  }
}

void TrainerTest::ExpectResumedEqualsUninterrupted(const v1::JobSpec& spec, uint32_t world) {
  SCOPED_TRACE(world);
  const v1::TrainSummary whole = TrainOk(spec, world, WithCheckpoints(1));
  const std::string state = StateBytes(Folder(13));
  ASSERT_FALSE(state.empty());
  for (const fs::directory_entry& entry : fs::directory_iterator(checkpoints_.path())) {
    if (entry.path() != Folder(5)) fs::remove_all(entry.path());
  }

  TrainerOptions options = WithCheckpoints(2);
  const auto found = options.checkpoints->FindNewestValid();
  ASSERT_TRUE(found.ok() && found->has_value()) << found.status();
  ASSERT_EQ((*found)->state.step, 5);
  // The root need not be rank 0.
  options.resume = ResumePoint{.rank = world - 1, .step = 5, .name = (*found)->name};
  const v1::TrainSummary rest = TrainOk(spec, world, std::move(options));
  EXPECT_EQ(rest.resumed_from_step(), 5);
  EXPECT_EQ(rest.first_loss_step(), 1);
  EXPECT_EQ(rest.steps(), 13);
  EXPECT_EQ(rest.weights_digest(), whole.weights_digest());
  EXPECT_EQ(rest.test_accuracy(), whole.test_accuracy());
  EXPECT_EQ(rest.test_loss(), whole.test_loss());
  EXPECT_EQ(rest.loss_scale(), whole.loss_scale());
  EXPECT_EQ(rest.skipped_steps(), whole.skipped_steps());
  ASSERT_EQ(rest.losses_size(), 13);
  for (int i = 0; i < 13; ++i) {
    // The loss of an overflowed step may be NaN.
    const bool both_nan = std::isnan(rest.losses(i)) && std::isnan(whole.losses(i));
    EXPECT_TRUE(both_nan || rest.losses(i) == whole.losses(i)) << i;
  }
  EXPECT_EQ(StateBytes(Folder(13, 2)), state);
  for (const auto& entry : fs::directory_iterator(checkpoints_.path())) {
    fs::remove_all(entry.path());
  }
}

TEST_F(TrainerTest, ResumesInMidEpoch) {
  for (const uint32_t world : {1u, 2u}) {
    ExpectResumedEqualsUninterrupted(FullSpec(13), world);
    ExpectResumedEqualsUninterrupted(RichSpec(13), world);
  }
}

TEST_F(TrainerTest, LossesAgreeWithSyncBatchNormAndRandomness) {
  v1::JobSpec spec = RichSpec(20);
  // Each slice of a batch has its own statistics, and the slices depend on the number of ranks.
  spec.mutable_train()->set_accumulation_steps(1);
  // AdamW would amplify rounding errors of small gradients.
  *spec.mutable_train()->mutable_optimizer() = FullSpec(20).train().optimizer();
  const v1::TrainSummary one = TrainOk(spec, 1);
  for (const uint32_t world : {2u, 4u}) {
    const v1::TrainSummary many = TrainOk(spec, world);
    for (int i = 0; i < 20; ++i) {
      EXPECT_NEAR(many.losses(i), one.losses(i), 1e-4 * one.losses(i))
          << "step " << i << " on " << world << " ranks";
    }
  }
}

TEST_F(TrainerTest, AccumulationEqualsWholeBatch) {
  v1::JobSpec spec = Spec(20);
  const v1::TrainSummary whole = TrainOk(spec, 2);
  spec.mutable_train()->set_accumulation_steps(3);
  const v1::TrainSummary parts = TrainOk(spec, 2);
  for (int i = 0; i < 20; ++i) EXPECT_NEAR(parts.losses(i), whole.losses(i), 1e-4);
}

TEST_F(TrainerTest, ContrastiveTrainingFindsOtherView) {
  v1::JobSpec spec = Spec(60);
  spec.mutable_train()->mutable_objective()->set_name("nt_xent");
  spec.mutable_train()->mutable_objective()->set_temperature(0.2);
  spec.mutable_train()->mutable_objective()->set_negatives("global");
  spec.mutable_train()->mutable_objective()->add_projection(32);
  spec.mutable_train()->mutable_augment()->set_crop_padding(1);
  spec.mutable_train()->mutable_optimizer()->set_learning_rate(0.1);
  spec.mutable_train()->set_global_batch(50);
  const v1::TrainSummary one = TrainOk(spec, 1);
  const v1::TrainSummary three = TrainOk(spec, 3);
  EXPECT_LT(one.losses(59), 0.7 * one.losses(0));
  EXPECT_GT(one.test_accuracy(), 0.2);  // chance level is 1 / 99
  for (int i = 0; i < 60; ++i) EXPECT_NEAR(three.losses(i), one.losses(i), 1e-4 * one.losses(i));
}

TEST_F(TrainerTest, DivergenceIsPermanentFailure) {
  v1::JobSpec spec = Spec(100);
  spec.mutable_train()->mutable_optimizer()->set_learning_rate(1e20);
  for (const Result& result : Train(spec, 2)) {
    EXPECT_EQ(ExitCodeOf(result.status), kExitDiverged) << result.status;
    EXPECT_TRUE(IsPermanent(ExitCodeOf(result.status)));
    EXPECT_THAT(std::string(result.status.message()), ::testing::HasSubstr("the loss of step"));
  }
}

TEST_F(TrainerTest, TrainsInEveryPrecision) {
  const v1::TrainSummary whole = TrainOk(FullSpec(30), 2);
  EXPECT_EQ(whole.precision(), "O0 float32");
  EXPECT_EQ(whole.loss_scale(), 0);
  for (const char* dtype : {"bfloat16", "float16"}) {
    for (const char* level : {"O1", "O2", "O3"}) {
      SCOPED_TRACE(std::string(level) + " " + dtype);
      const v1::TrainSummary mixed = TrainOk(Mixed(FullSpec(30), level, dtype), 2);
      EXPECT_THAT(mixed.precision(), ::testing::StartsWith(std::string(level) + " " + dtype));
      EXPECT_EQ(mixed.loss_scale() > 0, std::string(dtype) == "float16");
      EXPECT_NE(mixed.weights_digest(), whole.weights_digest());
      ASSERT_EQ(mixed.losses_size(), 30);
      // Individual losses differ, but their trend must not.
      double difference = 0, sum = 0;
      for (int i = 10; i < 30; ++i) {
        difference += mixed.losses(i) - whole.losses(i);
        sum += whole.losses(i);
      }
      EXPECT_LT(std::abs(difference), 0.1 * sum);
      EXPECT_GT(mixed.kernel_seconds(), 0);
      // Each is a part of every step; the sum of their medians can exceed the median of the steps.
      EXPECT_LE(mixed.kernel_seconds(), mixed.median_step_seconds());
      EXPECT_LE(mixed.exposed_communication_seconds(), mixed.median_step_seconds());
    }
  }
}

// Scaling and unscaling by powers of two is exact, even while the scale changes.
TEST_F(TrainerTest, LossScalingDoesNotChangeResults) {
  v1::JobSpec spec = Mixed(FullSpec(12), "O2", "bfloat16");
  const v1::TrainSummary plain = TrainOk(spec, 2);
  v1::LossScaleSpec& scale = *spec.mutable_train()->mutable_mixed_precision()->mutable_loss_scale();
  scale.set_initial(256);
  scale.set_growth_interval(2);
  const v1::TrainSummary scaled = TrainOk(spec, 2);
  EXPECT_EQ(scaled.loss_scale(), 256 * 64);
  EXPECT_EQ(scaled.skipped_steps(), 0);
  EXPECT_EQ(scaled.weights_digest(), plain.weights_digest());
  EXPECT_THAT(scaled.losses(), ::testing::ElementsAreArray(plain.losses()));
}

TEST_F(TrainerTest, AllRanksSkipOverflowingSteps) {
  v1::JobSpec spec = Overflowing(FullSpec(30), "O2");
  // The average starts with the first update, which is not the first step.
  spec.mutable_train()->mutable_ema()->set_decay(0.5);
  const std::vector<Result> results = Train(spec, 3, WithCheckpoints(1));
  for (const Result& result : results) {
    ASSERT_TRUE(result.status.ok()) << result.status;
    EXPECT_EQ(result.summary.weights_digest(), results[0].summary.weights_digest());
    EXPECT_EQ(result.summary.skipped_steps(), results[0].summary.skipped_steps());
    EXPECT_EQ(result.progress.back().loss_scale(), result.summary.loss_scale());
    EXPECT_EQ(result.progress.back().skipped_steps(), result.summary.skipped_steps());
  }
  const v1::TrainSummary& summary = results[0].summary;
  EXPECT_EQ(summary.steps(), 30);
  EXPECT_GT(summary.skipped_steps(), 2);
  EXPECT_LT(summary.skipped_steps(), 25);
  EXPECT_LT(summary.loss_scale(), 1 << 24);
  EXPECT_LT(summary.losses(29), 0.8 * summary.losses(0));
  EXPECT_TRUE(std::isfinite(summary.test_loss()));
  // Skipped steps do not affect the running statistics.
  const auto file = SafetensorsFile::Open(ModelPath(30));
  ASSERT_TRUE(file.ok()) << file.status();
  for (const char* name : {"1.running_mean", "1.running_var"}) {
    const auto statistics = file->ReadFloats(name, {32});
    ASSERT_TRUE(statistics.ok()) << statistics.status();
    for (const float value : *statistics) EXPECT_TRUE(std::isfinite(value)) << name;
  }
}

TEST_F(TrainerTest, ResumesLossScale) {
  for (const uint32_t world : {1u, 2u}) {
    ExpectResumedEqualsUninterrupted(Overflowing(FullSpec(13), "O2"), world);
    ExpectResumedEqualsUninterrupted(Overflowing(RichSpec(13), "O1"), world);
    ExpectResumedEqualsUninterrupted(Mixed(RichSpec(13), "O3", "bfloat16"), world);
  }
}

TEST_F(TrainerTest, DivergesWhenLossScaleCannotBeReduced) {
  v1::JobSpec spec = Mixed(Spec(100), "O2", "float16");
  spec.mutable_train()->mutable_optimizer()->set_learning_rate(1e20);
  for (const Result& result : Train(spec, 2)) {
    EXPECT_EQ(ExitCodeOf(result.status), kExitDiverged) << result.status;
    EXPECT_THAT(
        std::string(result.status.message()),
        ::testing::HasSubstr("overflowed, as in the 19 steps before, and the loss scale of 1 "
                             "cannot be reduced: training diverged"));
  }
}

TEST_F(TrainerTest, RankZeroWritesTensorBoardEvents) {
  v1::JobSpec spec = Overflowing(Spec(12), "O1");
  spec.mutable_train()->mutable_tensorboard()->set_every_steps(5);
  TrainerOptions options;
  options.tensorboard_directory = checkpoints_.path() + "/events";
  TrainOk(spec, 2, std::move(options));
  const std::vector<fs::directory_entry> files(
      fs::directory_iterator(checkpoints_.path() + "/events"), fs::directory_iterator());
  ASSERT_EQ(files.size(), 1);
  std::ifstream in(files[0].path(), std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(in), {});
  for (const char* tag : {"train/loss", "train/stall_seconds", "train/loss_scale",
                          "train/skipped_steps", "test/accuracy"}) {
    EXPECT_THAT(bytes, ::testing::HasSubstr(tag));
  }
}

TEST_F(TrainerTest, EvaluatesFinishedTraining) {
  const v1::TrainSummary whole = TrainOk(FullSpec(5), 2, WithCheckpoints(1));
  TrainerOptions options = WithCheckpoints(2);
  options.resume = ResumePoint{.rank = 0, .step = 5, .name = "step-00000005.g1"};
  options.newest_checkpoint = CheckpointRef{"step-00000005.g1", 5};
  const v1::TrainSummary again = TrainOk(FullSpec(5), 2, std::move(options));
  EXPECT_EQ(again.steps(), 5);
  EXPECT_THAT(again.losses(), ::testing::ElementsAreArray(whole.losses()));
  EXPECT_EQ(again.weights_digest(), whole.weights_digest());
  EXPECT_EQ(again.test_accuracy(), whole.test_accuracy());
  EXPECT_FALSE(again.already_complete()) << "an earlier generation of the job has trained";
  EXPECT_EQ(again.checkpoint(), Folder(5));
}

// A job that continues another one leaves the other's directory alone and writes to its own, even
// if no step is left to train.
TEST_F(TrainerTest, ContinuesFromCheckpointOfAnotherJob) {
  const v1::TrainSummary whole = TrainOk(FullSpec(10), 2, WithCheckpoints(1));
  EXPECT_EQ(whole.checkpoint(), Folder(10));
  for (const uint64_t first_step : {5, 10}) {
    data::TemporaryDirectory own;
    TrainerOptions options;
    options.resume = ResumePoint{
        .rank = 1, .step = first_step, .own = false, .name = FormatFolderName({first_step, 1})};
    options.resume_directory = CheckpointDirectory::OpenReadOnly(checkpoints_.path());
    options.checkpoints = *CheckpointDirectory::OpenForWriting({own.path(), "continued", 1, 10});
    std::vector<std::string> written;
    options.on_checkpoint = [&written](const CheckpointRef& checkpoint) {
      written.push_back(checkpoint.name);
    };
    const v1::TrainSummary continued = TrainOk(FullSpec(10), 2, std::move(options));
    EXPECT_EQ(continued.resumed_from_step(), first_step);
    EXPECT_EQ(continued.already_complete(), first_step == 10);
    EXPECT_EQ(continued.weights_digest(), whole.weights_digest());
    // The losses of the other job are not this one's.
    EXPECT_EQ(continued.first_loss_step(), first_step + 1);
    EXPECT_EQ(continued.losses_size(), 10 - static_cast<int>(first_step));
    EXPECT_EQ(continued.evaluations_size(), 1);
    EXPECT_EQ(continued.final_loss(), whole.final_loss());
    EXPECT_EQ(continued.checkpoint(), own.path() + "/step-00000010.g1");
    EXPECT_TRUE(fs::exists(continued.checkpoint()));
    EXPECT_THAT(written, ::testing::ElementsAre("step-00000010.g1"));
  }
}

TEST_F(TrainerTest, CheckpointIsStateDict) {
  TrainOk(FullSpec(5), 1, WithCheckpoints(1));
  const auto file = SafetensorsFile::Open(ModelPath(5));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE(file->ReadFloats("0.weight", {32, 1, 3, 3}).ok());
  EXPECT_TRUE(file->ReadFloats("1.running_var", {32}).ok());
  EXPECT_TRUE(file->Contains("1.num_batches_tracked"));
  EXPECT_TRUE(file->ReadFloats("9.weight", {128, 3136}).ok());
  EXPECT_FALSE(file->Contains("num_batches_tracked"));
}

TEST_F(TrainerTest, AllowsShortOrEmptyShares) {
  v1::JobSpec spec = Spec(5);
  spec.mutable_train()->set_global_batch(3);
  const v1::TrainSummary one = TrainOk(spec, 1);
  const v1::TrainSummary many = TrainOk(spec, 5);
  for (int i = 0; i < 5; ++i) EXPECT_NEAR(many.losses(i), one.losses(i), 1e-4 * one.losses(i));
}

TEST_F(TrainerTest, CanonicalLayoutGivesSameWeights) {
  TrainerOptions options;
  options.canonical_layout = true;
  EXPECT_EQ(TrainOk(FullSpec(6), 2, std::move(options)).weights_digest(),
            TrainOk(FullSpec(6), 2).weights_digest());
}

TEST_F(TrainerTest, EvaluatesAfterEpochsIfConfigured) {
  v1::JobSpec spec = Spec(15);
  spec.mutable_train()->set_evaluate_every_epochs(1);
  const std::vector<Result> results = Train(spec, 2);
  ASSERT_TRUE(results[1].status.ok()) << results[1].status;
  int evaluations = 0;
  std::vector<uint64_t> images;  // of the last evaluation
  for (const v1::Progress& progress : results[1].progress) {
    if (progress.phase() != "evaluating") continue;
    if (progress.phase_unit().empty()) {
      ++evaluations;
      images.clear();
      continue;
    }
    EXPECT_EQ(progress.phase_unit(), "images");
    EXPECT_EQ(progress.phase_total(), 103);
    images.push_back(progress.phase_progress());
  }
  EXPECT_EQ(evaluations, 3);
  EXPECT_TRUE(std::is_sorted(images.begin(), images.end()));
  EXPECT_EQ(images.front(), 0);
  EXPECT_EQ(images.back(), 103);
  ASSERT_EQ(results[1].summary.evaluations_size(), 3);
  for (int i = 0; i < 3; ++i) {
    const v1::Evaluation& evaluation = results[1].summary.evaluations(i);
    EXPECT_EQ(evaluation.step(), 5 * (i + 1));
    const double before = i > 0 ? results[1].summary.evaluations(i - 1).training_seconds() : 0;
    EXPECT_GT(evaluation.training_seconds(), before);
  }
}

TEST_F(TrainerTest, InitializesFromFile) {
  const v1::TrainSummary trained = TrainOk(Spec(40), 2, WithCheckpoints(1));
  v1::JobSpec spec = Spec(1);
  spec.mutable_train()->set_init_from(ModelPath(40));
  EXPECT_LT(TrainOk(spec, 2).losses(0), 0.5 * trained.losses(0));

  spec.mutable_train()->set_init_from(checkpoints_.path() + "/none.safetensors");
  const Result result = Train(spec, 1)[0];
  EXPECT_EQ(ExitCodeOf(result.status), kExitNoInput);
  EXPECT_THAT(std::string(result.status.message()), ::testing::HasSubstr("none.safetensors"));
}

// It is found only in the evaluation.
TEST_F(TrainerTest, DamagedTestImageIsNoInput) {
  for (const std::string split : {"train", "val"}) {
    const std::string folder = absl::StrFormat("%s/folder/%s/0", data_.path(), split);
    fs::create_directories(folder);
    const std::string image = data::EncodeJpeg({});
    for (const char* const name : {"/1.jpg", "/2.jpg"}) data::WriteFile(folder + name, image);
    if (split == "val") data::WriteFile(folder + "/2.jpg", image.substr(0, 200));
  }
  v1::JobSpec spec = Spec(2);
  spec.mutable_train()->mutable_dataset()->set_name("image_folder");
  spec.mutable_train()->mutable_dataset()->set_path(data_.path() + "/folder");
  spec.mutable_train()->set_global_batch(2);
  spec.mutable_train()->set_image_size(16);
  const Result result = Train(spec, 1)[0];
  EXPECT_EQ(ExitCodeOf(result.status), kExitNoInput) << result.status;
  EXPECT_TRUE(IsPermanent(ExitCodeOf(result.status)));
  EXPECT_THAT(std::string(result.status.message()), ::testing::HasSubstr("folder/val/0/2.jpg"));
}

TEST_F(TrainerTest, AbortEndsAllRanks) {
  const std::vector<Result> results =
      Train(Spec(1'000'000), 3, {}, [this](uint32_t rank, const v1::Progress& progress) {
        if (rank != 1 || progress.step() == 0) return;
        for (ProcessGroups& groups : groups_) groups.world->Abort(absl::AbortedError("enough"));
      });
  for (const Result& result : results) {
    // UNAVAILABLE if a peer was aborted earlier and closed its connection.
    EXPECT_TRUE(absl::IsAborted(result.status) || absl::IsUnavailable(result.status))
        << result.status;
  }
}

TEST_F(TrainerTest, StaleGenerationStopsAtNextCheckpoint) {
  TrainerOptions stale = WithCheckpoints(1);
  Checkpoint newer;
  newer.state.step = 1;
  newer.state.job_id = "job";
  ASSERT_TRUE(WithCheckpoints(2).checkpoints->Write(newer).ok());
  const Result result = Train(FullSpec(20), 1, std::move(stale))[0];
  EXPECT_EQ(result.status.code(), absl::StatusCode::kAborted);
  EXPECT_FALSE(IsPermanent(ExitCodeOf(result.status)));
}

}  // namespace
}  // namespace muster::train
