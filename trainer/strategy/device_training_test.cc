// Trains with ranks that reduce gradients between devices (each rank a process with the capturing
// device and the fake NCCL) and expects bit-identical results to training with the processes.
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/types/span.h"
#include "collectives/nccl/nccl.h"
#include "collectives/nccl/testing/fake_nccl_parts.h"
#include "collectives/testing.h"
#include "common/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/testing/capturing_device.h"
#include "kernels/testing/failing_device.h"
#include "kernels/testing/limited_device.h"
#include "spec/spec.h"
#include "trainer/data/testing.h"
#include "trainer/graph/testing/graphs.h"
#include "trainer/loop/trainer.h"
#include "trainer/loop/training_setup.h"
#include "trainer/strategy/create_strategy.h"
#include "trainer/strategy/device_bucket_reducer.h"

namespace muster::train {
namespace {

using ::testing::AnyOf;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr uint32_t kRanks = 2;

class DeviceTrainingTest : public ::testing::Test {
 protected:
  using AtProgress = std::function<void(uint32_t rank, const v1::Progress&)>;

  void SetUp() override { data::WriteSyntheticDataset(data_.path(), 330, 50); }

  // Batches of 50 samples; the last batch of an epoch has 30.
  v1::JobSpec Spec(uint64_t steps) const {
    v1::JobSpec job;
    v1::TrainSpec& spec = *job.mutable_train();
    spec.mutable_model()->set_name("small_cnn");
    spec.mutable_model()->set_batch_norm(true);
    spec.mutable_model()->set_dropout(0.2);
    spec.mutable_dataset()->set_name("fashion_mnist");
    spec.mutable_dataset()->set_path(data_.path());
    spec.set_max_steps(steps);
    spec.set_global_batch(50);
    spec.mutable_optimizer()->set_name("sgd");
    spec.mutable_optimizer()->set_learning_rate(0.02);
    spec.mutable_optimizer()->set_momentum(0.9);
    spec.mutable_optimizer()->set_weight_decay(5e-4);
    spec.mutable_strategy()->set_first_bucket_bytes(4096);
    spec.mutable_strategy()->set_bucket_bytes(1 << 18);
    spec.set_seed(1);
    spec.set_record_losses(true);
    return job;
  }

  v1::JobSpec PipelineSpec(const std::string& schedule, uint32_t micro_batches,
                           uint64_t steps) const {
    v1::JobSpec job = Spec(steps);
    v1::StrategySpec& strategy = *job.mutable_train()->mutable_strategy();
    strategy.set_name("pipeline");
    strategy.mutable_pipeline()->set_stages(2);
    strategy.mutable_pipeline()->set_schedule(schedule);
    strategy.mutable_pipeline()->set_micro_batches(micro_batches);
    // Measured cuts could differ between the trainings that are compared.
    strategy.mutable_pipeline()->add_cuts("4");
    return job;
  }

  absl::StatusOr<v1::TrainSummary> TrainRank(const v1::JobSpec& spec, uint32_t rank,
                                             bool on_devices, collectives::KeyStore& store,
                                             const AtProgress& at_progress) const {
    return TrainRank(spec, rank, on_devices ? kernels::CapturingDevice() : kernels::CpuDevice(),
                     store, {}, at_progress);
  }

  absl::StatusOr<v1::TrainSummary> TrainRank(const v1::JobSpec& spec, uint32_t rank,
                                             kernels::Device& device, collectives::KeyStore& store,
                                             TrainerOptions trainer_options,
                                             const AtProgress& at_progress = nullptr) const {
    const bool on_devices = !device.host_memory();
    ASSIGN_OR_RETURN(auto setup, SetUpTraining(spec, ranks_, "", {&device}));
    // This NCCL version does not allocate memory itself, so all memory is known to the device.
    collectives::NcclParts parts = collectives::FakeNcclParts(nullptr, "libfake_nccl_2.18.so");
    parts.make_stream = [&device] { return device.MakeStream(); };
    collectives::WorldOptions options;
    options.rank = rank;
    options.world_size = ranks_;
    options.ranks_on_node = {ranks_};
    options.store = &store;
    if (on_devices) options.nccl = &parts;
    ASSIGN_OR_RETURN(const ProcessGroups groups,
                     ProcessGroups::Create(options, RequiredGroupsOf(spec.train())));
    trainer_options.progress = [&](const v1::Progress& progress) {
      if (at_progress != nullptr) at_progress(rank, progress);
    };
    Trainer trainer(std::move(setup), &groups, std::move(trainer_options));
    return trainer.Run();
  }

  // Final state of each rank as text: weights digest, number of skipped steps, all losses.
  std::vector<std::string> Train(v1::JobSpec spec, bool on_devices,
                                 const AtProgress& at_progress = nullptr) {
    spec::ApplyDefaults(spec);
    collectives::FileKeyStore store;
    return collectives::RunRankProcesses(ranks_, [&](uint32_t rank) -> absl::Status {
      ASSIGN_OR_RETURN(const v1::TrainSummary summary,
                       TrainRank(spec, rank, on_devices, store, at_progress));
      std::string text =
          absl::StrCat(summary.weights_digest(), " ", summary.skipped_steps(), " skipped:");
      // The processes reduce the loss as a float, hence few digits.
      for (const float loss : summary.losses()) absl::StrAppendFormat(&text, " %.4g", loss);
      // A rank's process can return only a status.
      return absl::UnknownError(text);
    });
  }

  // Final weights of each rank and the evaluation of their average, with running statistics.
  std::vector<std::string> Evaluations(const v1::JobSpec& spec, const TrainerOptions& options,
                                       const AtProgress& at_progress) {
    collectives::FileKeyStore store;
    return collectives::RunRankProcesses(ranks_, [&](uint32_t rank) -> absl::Status {
      ASSIGN_OR_RETURN(
          const v1::TrainSummary summary,
          TrainRank(spec, rank, kernels::CapturingDevice(), store, options, at_progress));
      return absl::UnknownError(
          absl::StrFormat("%s %.17g", summary.weights_digest(), summary.test_loss()));
    });
  }

  // Loses rank 1 in a step after `after` and continues from what the others leave.
  void ExpectContinues(v1::JobSpec spec, uint32_t parts, uint64_t after) {
    spec::ApplyDefaults(spec);
    const std::vector<std::string> undisturbed = Evaluations(spec, {}, nullptr);
    const data::TemporaryDirectory directory;
    TrainerOptions options;
    options.memory = MemoryCheckpoints(directory.path() + "/job");
    options.layout_digest = "layout";
    std::vector<MemoryCheckpoint> left;
    // Seldom, the failure divides stages between two steps.
    for (int attempt = 0; attempt < 3 && left.size() != parts; ++attempt) {
      std::filesystem::remove_all(directory.path() + "/job");
      const auto lost =
          Evaluations(spec, options, [&](uint32_t rank, const v1::Progress& progress) {
            if (rank == 1 && progress.step() > after) std::raise(SIGKILL);
          });
      EXPECT_EQ(lost[1], "signal 9");
      EXPECT_THAT(lost[0], AnyOf(HasSubstr("UNAVAILABLE: "), HasSubstr("ABORTED: ")));
      left.clear();
      for (const MemoryCheckpoint& found : options.memory->Find(2, options.layout_digest)) {
        if (left.empty() || found.step == left.front().step) left.push_back(found);
      }
    }
    ASSERT_EQ(left.size(), parts);
    EXPECT_GE(left.front().step, after);
    EXPECT_LT(left.front().step, spec.train().max_steps());
    options.generation = 2;
    options.resume = ResumePoint{.rank = 0, .step = left.front().step, .own = false};
    for (const MemoryCheckpoint& part : left) options.resume->memory.push_back({0, part});
    EXPECT_EQ(Evaluations(spec, options, nullptr), undisturbed);
  }

  void ExpectTheSame(const v1::JobSpec& spec) {
    const std::vector<std::string> expected = Train(spec, /*on_devices=*/false);
    EXPECT_THAT(expected, Each(HasSubstr(" 0 skipped: 2.")));  // the first loss
    EXPECT_EQ(Train(spec, /*on_devices=*/true), expected);
  }

  const collectives::FakeNcclRules rules_;
  data::TemporaryDirectory data_;
  uint32_t ranks_ = kRanks;
};

TEST_F(DeviceTrainingTest, TrainsInFloat32) { ExpectTheSame(Spec(20)); }

TEST_F(DeviceTrainingTest, TrainsWithAccumulationClippingAndAverage) {
  v1::JobSpec spec = Spec(16);
  spec.mutable_train()->set_accumulation_steps(3);
  spec.mutable_train()->mutable_optimizer()->set_clip_norm(1);
  spec.mutable_train()->mutable_ema()->set_decay(0.8);
  ExpectTheSame(spec);
}

TEST_F(DeviceTrainingTest, ReducesInLowPrecision) {
  for (const char* type : {"bfloat16", "float16"}) {
    v1::JobSpec spec = Spec(16);
    spec.mutable_train()->set_precision("O2");
    v1::MixedPrecisionSpec& mixed = *spec.mutable_train()->mutable_mixed_precision();
    mixed.set_dtype(type);
    mixed.set_gradient_dtype(type);
    ExpectTheSame(spec);
  }
}

TEST_F(DeviceTrainingTest, AllRanksSkipOverflowingSteps) {
  v1::JobSpec spec = Spec(24);
  spec.mutable_train()->set_precision("O2");
  v1::MixedPrecisionSpec& mixed = *spec.mutable_train()->mutable_mixed_precision();
  mixed.set_dtype("float16");
  mixed.mutable_loss_scale()->set_initial(1 << 24);
  mixed.mutable_loss_scale()->set_growth_interval(4);
  mixed.set_gradient_dtype("float32");
  const auto results = Train(spec, /*on_devices=*/true);
  EXPECT_EQ(results[0], results[1]);
  EXPECT_THAT(results[0], testing::Not(testing::AnyOf(HasSubstr(" 0 skipped"), HasSubstr("nan"))));
  EXPECT_EQ(results, Train(spec, /*on_devices=*/false));
}

// Each rank keeps only the optimizer states of its shard.
TEST_F(DeviceTrainingTest, TrainsWithShardedOptimizer) {
  v1::JobSpec spec = Spec(12);
  const std::vector<std::string> whole = Train(spec, /*on_devices=*/true);
  spec.mutable_train()->mutable_strategy()->set_shard_optimizer(true);
  ExpectTheSame(spec);
  EXPECT_EQ(Train(spec, /*on_devices=*/true), whole);
  spec.mutable_train()->mutable_optimizer()->set_name("adamw");
  spec.mutable_train()->mutable_optimizer()->set_learning_rate(0.001);
  spec.mutable_train()->mutable_optimizer()->clear_momentum();
  spec.mutable_train()->set_accumulation_steps(3);
  spec.mutable_train()->mutable_optimizer()->set_clip_norm(1);
  spec.mutable_train()->mutable_ema()->set_decay(0.8);
  ExpectTheSame(spec);
}

TEST_F(DeviceTrainingTest, TrainsWithShardedOptimizerInLowPrecision) {
  v1::JobSpec spec = Spec(20);
  spec.mutable_train()->mutable_strategy()->set_shard_optimizer(true);
  spec.mutable_train()->set_precision("O2");
  v1::MixedPrecisionSpec& mixed = *spec.mutable_train()->mutable_mixed_precision();
  mixed.set_dtype("float16");
  mixed.set_gradient_dtype("float16");
  mixed.mutable_loss_scale()->set_initial(1 << 24);
  mixed.mutable_loss_scale()->set_growth_interval(4);
  const auto results = Train(spec, /*on_devices=*/true);
  EXPECT_EQ(results[0], results[1]);
  EXPECT_THAT(results[0], testing::Not(testing::AnyOf(HasSubstr(" 0 skipped"), HasSubstr("nan"))));
  EXPECT_EQ(results, Train(spec, /*on_devices=*/false));
}

TEST_F(DeviceTrainingTest, TrainsWithSynchronizedBatchNorm) {
  v1::JobSpec spec = Spec(12);
  spec.mutable_train()->set_sync_batch_norm(true);
  ExpectTheSame(spec);
}

// Steps are not captured: all device calls are made in every step.
TEST_F(DeviceTrainingTest, TrainsWithoutGraphs) {
  v1::JobSpec spec = Spec(12);
  spec.mutable_train()->set_sync_batch_norm(true);
  const std::vector<std::string> captured = Train(spec, /*on_devices=*/true);
  spec.mutable_train()->set_cuda_graphs("never");
  EXPECT_EQ(Train(spec, /*on_devices=*/true), captured);
}

// The ranks agree, and all of them train without graphs.
TEST_F(DeviceTrainingTest, TrainsWithoutGraphsIfARankCannotCapture) {
  v1::JobSpec spec = Spec(12);
  spec::ApplyDefaults(spec);
  const auto train = [&](uint32_t failing) {
    collectives::FileKeyStore store;
    return collectives::RunRankProcesses(kRanks, [&](uint32_t rank) -> absl::Status {
      kernels::FailingDevice& device = kernels::FailingDevice::Get();
      if (rank == failing) device.FailAt(kernels::DeviceCall::kFinishCapture, 1);
      ASSIGN_OR_RETURN(const v1::TrainSummary summary, TrainRank(spec, rank, device, store, {}));
      const bool launched = device.calls(kernels::DeviceCall::kLaunchGraph) > 0;
      return absl::UnknownError(
          absl::StrCat(summary.weights_digest(), launched ? " with graphs" : ""));
    });
  };
  const std::vector<std::string> expected = train(/*failing=*/kRanks);  // none
  EXPECT_EQ(expected[0], expected[1]);
  for (const uint32_t failing : {0u, 1u}) {
    const std::vector<std::string> digests = train(failing);
    EXPECT_THAT(digests, Each(digests[0]));
    EXPECT_EQ(absl::StrCat(digests[0], " with graphs"), expected[0]);
  }
}

// Stages transfer from device to device, and from the second step on launch captured graphs.
TEST_F(DeviceTrainingTest, TrainsPipeline) {
  for (const char* schedule : {"1f1b", "gpipe", "sequential"}) {
    for (const uint32_t micro_batches : {2u, 4u}) {
      SCOPED_TRACE(absl::StrCat(schedule, " with ", micro_batches, " micro-batches"));
      ExpectTheSame(PipelineSpec(schedule, micro_batches, 12));
    }
  }
}

TEST_F(DeviceTrainingTest, PipelineLaunchesGraphs) {
  v1::JobSpec spec = PipelineSpec("1f1b", 4, 12);
  spec::ApplyDefaults(spec);
  collectives::FileKeyStore store;
  const auto launches = collectives::RunRankProcesses(kRanks, [&](uint32_t rank) -> absl::Status {
    kernels::FailingDevice& device = kernels::FailingDevice::Get();
    RETURN_IF_ERROR(TrainRank(spec, rank, device, store, {}).status());
    return absl::UnknownError(absl::StrCat(device.calls(kernels::DeviceCall::kLaunchGraph)));
  });
  // Two graphs per step, except in the first step with 50 and the first with 30 samples (the last
  // of the epoch of 7), in which passes run directly, and the update in the very first.
  EXPECT_THAT(launches, Each("UNKNOWN: 21"));
}

TEST_F(DeviceTrainingTest, TrainsPipelineWithReplicasClippingAndLossScaling) {
  ranks_ = 6;
  v1::JobSpec spec = PipelineSpec("1f1b", 4, 12);
  v1::PipelineSpec& pipeline = *spec.mutable_train()->mutable_strategy()->mutable_pipeline();
  pipeline.set_stages(3);
  pipeline.add_cuts("9");
  spec.mutable_train()->mutable_optimizer()->set_clip_norm(1);
  ExpectTheSame(spec);
  spec.mutable_train()->set_precision("O2");
  v1::MixedPrecisionSpec& mixed = *spec.mutable_train()->mutable_mixed_precision();
  mixed.set_dtype("float16");
  mixed.mutable_loss_scale()->set_initial(1 << 24);
  mixed.mutable_loss_scale()->set_growth_interval(4);
  mixed.set_gradient_dtype("float32");
  const auto results = Train(spec, /*on_devices=*/true);
  EXPECT_THAT(results, Each(testing::Not(AnyOf(HasSubstr(" 0 skipped"), HasSubstr("nan")))));
  EXPECT_EQ(results, Train(spec, /*on_devices=*/false));
}

TEST_F(DeviceTrainingTest, LostStageEndsStepOfPeers) {
  const auto results = Train(PipelineSpec("1f1b", 4, 1'000'000), /*on_devices=*/true,
                             [](uint32_t rank, const v1::Progress& progress) {
                               if (rank == 1 && progress.step() > 10) std::raise(SIGKILL);
                             });
  EXPECT_THAT(results[0], HasSubstr("UNAVAILABLE: "));
  EXPECT_EQ(results[1], "signal 9");
}

// The survivors copy their state from their devices, on which they had queued steps that could no
// longer be completed. The next generation ends as if nothing had happened.
TEST_F(DeviceTrainingTest, SurvivorLeavesTheStateOfItsDevice) {
  v1::JobSpec spec = Spec(20);
  spec.mutable_train()->set_sync_batch_norm(true);
  spec.mutable_train()->mutable_ema()->set_decay(0.8);
  ExpectContinues(spec, /*parts=*/1, /*after=*/9);
}

TEST_F(DeviceTrainingTest, SurvivingStagesLeaveTheirStates) {
  ranks_ = 4;
  v1::JobSpec spec = PipelineSpec("1f1b", 2, 6);
  // Replicas have different running statistics.
  spec.mutable_train()->mutable_model()->set_batch_norm(false);
  spec.mutable_train()->mutable_strategy()->mutable_pipeline()->set_cuts(0, "3");
  ExpectContinues(spec, /*parts=*/2, /*after=*/2);
}

// Its state stays on the device, and the rank ends within the bound.
TEST_F(DeviceTrainingTest, SurvivorOfAFailedDeviceLeavesNothing) {
  v1::JobSpec spec = Spec(1'000'000);
  spec.mutable_train()->set_cuda_graphs("never");
  spec::ApplyDefaults(spec);
  const data::TemporaryDirectory directory;
  collectives::FileKeyStore store;
  const absl::Time start = absl::Now();
  const auto results = collectives::RunRankProcesses(kRanks, [&](uint32_t rank) -> absl::Status {
    kernels::FailingDevice& device = kernels::FailingDevice::Get();
    TrainerOptions options;
    options.memory = MemoryCheckpoints(directory.path() + "/job");
    options.on_peer_lost = [&](const absl::Status&, uint64_t) {
      device.FailAt(kernels::DeviceCall::kCopyToHost, 1);
    };
    return TrainRank(spec, rank, device, store, std::move(options),
                     [](uint32_t reporting, const v1::Progress& progress) {
                       if (reporting == 1 && progress.step() > 9) std::raise(SIGKILL);
                     })
        .status();
  });
  EXPECT_EQ(results[1], "signal 9");
  EXPECT_FALSE(std::filesystem::exists(directory.path() + "/job"));
  EXPECT_LT(absl::Now() - start, absl::Seconds(30));
}

// A kernel of one rank fails in step 8, of which a checkpoint is due, and its device reports that
// after the ranks have agreed to write it. The gradients that this rank has sent are damaged.
TEST_F(DeviceTrainingTest, NoRankWritesACheckpointAfterAnErrorOfOne) {
  v1::JobSpec spec = Spec(12);
  spec.mutable_train()->set_cuda_graphs("never");
  spec.mutable_train()->mutable_checkpoint()->set_every_steps(4);
  spec::ApplyDefaults(spec);
  const data::TemporaryDirectory checkpoints;
  collectives::FileKeyStore store;
  const auto results = collectives::RunRankProcesses(kRanks, [&](uint32_t rank) -> absl::Status {
    kernels::FailingDevice& device = kernels::FailingDevice::Get();
    TrainerOptions options;
    options.job_id = "job";
    ASSIGN_OR_RETURN(options.checkpoints,
                     CheckpointDirectory::OpenForWriting({checkpoints.path(), "job", 1, 10}));
    return TrainRank(spec, rank, device, store, std::move(options),
                     [&](uint32_t reporting, const v1::Progress& progress) {
                       if (reporting != 1 || progress.step() != 7 || device.failed()) return;
                       device.FailAt(kernels::DeviceCall::kKernel, 5,
                                     kernels::FailingDevice::Reported::kLate);
                     })
        .status();
  });
  EXPECT_EQ(results[1], "INTERNAL: failing: an injected error [muster/exit-code='71']");
  EXPECT_THAT(results[0], HasSubstr("UNAVAILABLE: "));
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(checkpoints.path())) {
    const std::string name = entry.path().filename();
    if (absl::StartsWith(name, "step-")) names.push_back(name);
  }
  EXPECT_THAT(names, ::testing::ElementsAre("step-00000004.g1"));
}

TEST_F(DeviceTrainingTest, LostRankEndsStepOfPeers) {
  const absl::Time start = absl::Now();
  const auto results =
      Train(Spec(1'000'000), /*on_devices=*/true, [](uint32_t rank, const v1::Progress& progress) {
        if (rank == 1 && progress.step() > 10) std::raise(SIGKILL);
      });
  // Either group may notice it first.
  EXPECT_THAT(results[0], AnyOf(HasSubstr("UNAVAILABLE: DEVICES: NCCL: asynchronous error"),
                                HasSubstr("UNAVAILABLE: rank 1 died")));
  EXPECT_EQ(results[1], "signal 9");
  EXPECT_LT(absl::Now() - start, absl::Seconds(30));
}

TEST_F(DeviceTrainingTest, ReportsRanksWithDifferentWeights) {
  for (const float other_rate : {0.02f, 0.03f}) {
    collectives::FileKeyStore store;
    const auto results = collectives::RunRankProcesses(kRanks, [&](uint32_t rank) -> absl::Status {
      v1::JobSpec spec = Spec(4);
      spec::ApplyDefaults(spec);
      if (rank == 1) spec.mutable_train()->mutable_optimizer()->set_learning_rate(other_rate);
      ASSIGN_OR_RETURN(const v1::TrainSummary summary,
                       TrainRank(spec, rank, /*on_devices=*/true, store, nullptr));
      return absl::UnknownError(absl::StrCat(summary.differing_replicas()));
    });
    EXPECT_THAT(results, Each(other_rate == 0.02f ? "UNKNOWN: 0" : "UNKNOWN: 1"));
  }
}

TEST_F(DeviceTrainingTest, DoesNotCommunicateInWorldOfOne) {
  const auto compiled = nn::Compile(nn::SmallResNet(), {.max_batch = 1});
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  nn::Plan& plan = **compiled;
  DeviceBucketReducerOptions options;
  options.first_bucket_bytes = 1024;
  options.accumulates = true;
  const auto reducer = DeviceBucketReducer::Create(nullptr, &plan, options);
  ASSERT_TRUE(reducer.ok()) << reducer.status();
  const size_t count = plan.parameter_elements();
  const auto gradients = absl::MakeSpan((*reducer)->gradients(), count);
  nn::LossResult loss{1.5, 2};
  for (int step = 0; step < 2; ++step) {
    for (const bool first : {true, false}) {
      std::fill(gradients.begin(), gradients.end(), first ? 1.0f : 2.0f);
      (*reducer)->Accumulate(first);
    }
    std::fill(gradients.begin(), gradients.end(), 4.0f);
    (*reducer)->Begin();
    (*reducer)->ReduceLosses(&loss, 1);
    (*reducer)->Ready(count / 2, /*accumulated=*/true);
    (*reducer)->Ready(0, /*accumulated=*/true);
    ASSERT_TRUE((*reducer)->Finish().ok());
    EXPECT_THAT(gradients, Each(7.0f));
    EXPECT_EQ(loss.loss_sum, 1.5);
  }
  EXPECT_EQ((*reducer)->operations(), 0);
  EXPECT_EQ((*reducer)->bytes(), 0);
}

TEST(DeviceBucketReducerTest, ReturnsExhaustionOfDeviceMemory) {
  kernels::LimitedDevice device;
  const auto plan = nn::Compile(nn::SmallResNet(), {.max_batch = 1, .device = &device});
  ASSERT_TRUE(plan.ok()) << plan.status();
  DeviceBucketReducerOptions options;
  options.accumulates = true;
  const auto create = [&] {
    return DeviceBucketReducer::Create(/*communicator=*/nullptr, plan->get(), options).status();
  };
  EXPECT_EQ(AllocationsNeeded(device, create), 2);
  options.type = kernels::DataType::kBfloat16;  // reduced in an array of their own
  EXPECT_EQ(AllocationsNeeded(device, create), 3);
}

}  // namespace
}  // namespace muster::train
