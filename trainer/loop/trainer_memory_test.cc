// Ranks that lose a peer leave their state in memory, and the next generation continues from it.
#include <algorithm>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/checkpoint/memory_checkpoint.h"
#include "trainer/loop/trainer_checkpoint_testing.h"

namespace muster::train {
namespace {

namespace fs = std::filesystem;

class TrainerMemoryTest : public TrainerCheckpointTest {
 protected:
  static constexpr uint64_t kSteps = 12;

  // Batch norm changes its running statistics before the step is known to succeed. They are
  // synchronized, because those of the rank that leaves its state are used.
  v1::JobSpec SpecWithState() const {
    v1::JobSpec job = Spec(kSteps);
    v1::ModelSpec& model = *job.mutable_train()->mutable_model();
    model.clear_name();
    v1::Conv2dSpec& convolution = *model.add_layers()->mutable_conv2d();
    convolution.set_out_channels(4);
    convolution.set_kernel(3);
    model.add_layers()->mutable_batch_norm2d();
    model.add_layers()->mutable_relu();
    model.add_layers()->mutable_adaptive_avg_pool2d();
    model.add_layers()->mutable_flatten();
    model.add_layers()->mutable_linear();
    job.mutable_train()->set_sync_batch_norm(true);
    job.mutable_train()->mutable_ema()->set_decay(0.9);
    job.mutable_train()->mutable_checkpoint()->set_keep(1);
    job.mutable_train()->set_record_losses(true);
    return job;
  }

  void LoseRank(uint32_t rank) { Abort(rank, absl::UnavailableError("the rank was lost")); }

  static v1::JobSpec Pipelined(v1::JobSpec job) {
    v1::PipelineSpec& pipeline = *job.mutable_train()->mutable_strategy()->mutable_pipeline();
    job.mutable_train()->mutable_strategy()->set_name("pipeline");
    job.mutable_train()->set_sync_batch_norm(false);
    pipeline.set_stages(2);
    pipeline.set_micro_batches(2);
    // Other cuts, which are measured by default, fuse other operations and may round differently.
    pipeline.add_cuts(absl::StrCat(job.train().model().layers_size() - 1));
    return job;
  }
  static v1::JobSpec Sharded(v1::JobSpec job) {
    job.mutable_train()->mutable_strategy()->set_shard_optimizer(true);
    return job;
  }

  // Interrupts the training `rounds` times at random moments, between steps or in any phase of a
  // step, so that the ranks fail at different points of it and may even have completed different
  // numbers of steps. Each time, the next generation must end as `undisturbed`.
  struct Continued {
    int interrupted = 0;  // after a step
    int from_memory = 0;
  };
  enum class Leaves { kAll, kAllButTheLost };
  Continued Interrupt(const v1::JobSpec& spec, uint32_t world, uint32_t lost, Leaves leaves,
                      int rounds, const std::string& undisturbed) {
    memory_ = left_;
    std::mt19937 random(1);
    Continued continued;
    for (int round = 0; round < rounds; ++round) {
      const uint64_t at_step = random() % (kSteps - 1);
      const auto delay = absl::Microseconds(random() % 20'000);
      std::atomic<bool> due = false;
      std::atomic<bool> over = false;
      std::thread loser([&] {
        while (!due && !over) std::this_thread::yield();
        absl::SleepFor(delay);
        if (!over) LoseRank(lost);
      });
      if (leaves == Leaves::kAllButTheLost) without_memory_ = lost;
      const auto results =
          Train(spec, world, /*generation=*/1, [&](uint32_t rank, const v1::Progress& progress) {
            if (rank == 0 && progress.phase() == "training" && progress.step() == at_step) {
              due = true;
            }
          });
      over = true;
      loser.join();
      without_memory_.reset();
      if (!results[0].status.ok()) {
        uint64_t newest = 0;
        for (const Result& result : results) {
          newest = std::max(newest, result.left_step.value_or(0));
        }
        EXPECT_GE(newest, at_step);
        // The rank may be lost after the last checkpoint, from which the next generation continues.
        const bool on_disk = Newest().has_value();
        const Result rest = Train(spec, world, /*generation=*/2)[0];
        EXPECT_TRUE(rest.status.ok()) << rest.status;
        // Also of the step in which the rank was lost, if the others have completed it.
        EXPECT_THAT(rest.summary.losses(), ::testing::ElementsAreArray(losses_));
        // An update that only some ranks had begun may have been completed by its shards' owners.
        if (newest > 0 && !on_disk) {
          ++continued.interrupted;
          if (rest.summary.resumed_from_step() >= newest) ++continued.from_memory;
        }
        EXPECT_LE(rest.summary.resumed_from_step(), newest + 1);
        EXPECT_TRUE(!fs::exists(node_.path() + "/job") || fs::is_empty(node_.path() + "/job"));
      }
      EXPECT_TRUE(SavedTensors() == undisturbed) << "round " << round << ", step " << at_step;
      fs::remove_all(checkpoints_.path());
    }
    return continued;
  }

  // Asks the ranks of the first generation to stop, and to leave their states in memory.
  std::vector<Result> Stop(const v1::JobSpec& spec, uint32_t world) {
    return Train(spec, world, /*generation=*/1, [&](uint32_t rank, const v1::Progress& progress) {
      if (rank != world - 1 || progress.phase() != "training") return;
      for (const auto& requests : requests_) {
        requests->LeaveInMemory();
        requests->RequestStop(SIGTERM);
      }
    });
  }

  // The next generation must continue after the step at which the first one stopped, and end as
  // `undisturbed`.
  void ExpectContinuesAfter(const std::vector<Result>& stopped, const v1::JobSpec& spec,
                            const std::string& undisturbed) {
    for (const Result& result : stopped) {
      EXPECT_EQ(result.status.code(), absl::StatusCode::kCancelled) << result.status;
      EXPECT_FALSE(result.left_step.has_value()) << "no peer was lost";
    }
    const uint64_t step = stopped[0].step;
    EXPECT_GT(step, 0u);
    EXPECT_LT(step, kSteps);
    const auto world = static_cast<uint32_t>(stopped.size());
    const Result rest = Train(spec, world, /*generation=*/2)[0];
    EXPECT_TRUE(rest.status.ok()) << rest.status;
    EXPECT_EQ(rest.summary.resumed_from_step(), step);
    EXPECT_THAT(rest.summary.losses(), ::testing::ElementsAreArray(losses_));
    EXPECT_TRUE(SavedTensors() == undisturbed);
    fs::remove_all(checkpoints_.path());
  }

  std::string StateOfUndisturbed(const v1::JobSpec& spec, uint32_t world) {
    const auto memory = std::exchange(memory_, std::nullopt);
    const Result whole = Train(spec, world)[0];
    EXPECT_TRUE(whole.status.ok()) << whole.status;
    losses_.assign(whole.summary.losses().begin(), whole.summary.losses().end());
    std::string state = SavedTensors();
    fs::remove_all(checkpoints_.path());
    memory_ = memory;
    return state;
  }

  std::vector<float> losses_;  // of the undisturbed training
  data::TemporaryDirectory node_;
  const MemoryCheckpoints left_{node_.path() + "/job"};
};

TEST_F(TrainerMemoryTest, ContinuesBitEqualFromAnyMoment) {
  const v1::JobSpec spec = SpecWithState();
  constexpr uint32_t kWorld = 3;
  const std::string undisturbed = StateOfUndisturbed(spec, kWorld);
  const Continued continued = Interrupt(spec, kWorld, /*lost=*/1, Leaves::kAll, 20, undisturbed);
  EXPECT_GE(continued.interrupted, 10);
  EXPECT_EQ(continued.from_memory, continued.interrupted);
}

// Two replicas of two stages: each stage of the lost rank's pipeline has a replica.
TEST_F(TrainerMemoryTest, PipelineContinuesFromReplicasOfItsStages) {
  v1::JobSpec job = SpecWithState();
  // Replicas have different running statistics.
  job.mutable_train()->mutable_model()->mutable_layers()->DeleteSubrange(1, 1);
  const v1::JobSpec spec = Pipelined(std::move(job));
  constexpr uint32_t kWorld = 4;
  const std::string undisturbed = StateOfUndisturbed(spec, kWorld);
  Continued all;
  for (uint32_t lost = 0; lost < kWorld; ++lost) {
    const Continued continued =
        Interrupt(spec, kWorld, lost, Leaves::kAllButTheLost, 4, undisturbed);
    all.interrupted += continued.interrupted;
    all.from_memory += continued.from_memory;
  }
  EXPECT_GE(all.interrupted, 8);
  // The failure may divide the ranks between two steps, which have no common state; the more they
  // have to wait for a processor, the more often.
  EXPECT_GE(2 * all.from_memory, all.interrupted);
}

TEST_F(TrainerMemoryTest, PipelineWithoutReplicasNeedsEveryStage) {
  const v1::JobSpec spec = Pipelined(SpecWithState());
  constexpr uint32_t kWorld = 2;
  const std::string undisturbed = StateOfUndisturbed(spec, kWorld);
  const Continued all = Interrupt(spec, kWorld, /*lost=*/1, Leaves::kAll, 6, undisturbed);
  EXPECT_GE(all.interrupted, 3);
  EXPECT_GE(2 * all.from_memory, all.interrupted);
  const Continued one = Interrupt(spec, kWorld, /*lost=*/1, Leaves::kAllButTheLost, 4, undisturbed);
  EXPECT_GE(one.interrupted, 2);
  EXPECT_EQ(one.from_memory, 0);
}

TEST_F(TrainerMemoryTest, ShardedOptimizerNeedsEveryShard) {
  const v1::JobSpec spec = Sharded(SpecWithState());
  constexpr uint32_t kWorld = 3;
  for (const char* const backend : {"loopback", "shm"}) {
    SCOPED_TRACE(backend);
    backend_ = backend;
    const std::string undisturbed = StateOfUndisturbed(spec, kWorld);
    const Continued all = Interrupt(spec, kWorld, /*lost=*/1, Leaves::kAll, 8, undisturbed);
    EXPECT_GE(all.interrupted, 4);
    EXPECT_GE(2 * all.from_memory, all.interrupted);
    const Continued one =
        Interrupt(spec, kWorld, /*lost=*/1, Leaves::kAllButTheLost, 4, undisturbed);
    EXPECT_GE(one.interrupted, 2);
    EXPECT_EQ(one.from_memory, 0);
  }
}

TEST_F(TrainerMemoryTest, StopLeavesTheStateInMemoryWhereItIsAskedTo) {
  const v1::JobSpec whole = SpecWithState();
  for (const v1::JobSpec& spec : {whole, Pipelined(whole), Sharded(whole)}) {
    SCOPED_TRACE(spec.train().strategy().ShortDebugString());
    for (const char* const backend : {"loopback", "shm"}) {
      backend_ = backend;
      const std::string undisturbed = StateOfUndisturbed(spec, 2);
      memory_ = left_;
      const auto stopped = Stop(spec, 2);
      EXPECT_FALSE(Newest().has_value());
      ExpectContinuesAfter(stopped, spec, undisturbed);
    }
  }
}

TEST_F(TrainerMemoryTest, StopSavesTheStateIfARankCannotLeaveIt) {
  const v1::JobSpec spec = Sharded(SpecWithState());
  const std::string undisturbed = StateOfUndisturbed(spec, 2);
  keep_ = 1;
  const auto expect_saved = [&] {
    const auto stopped = Stop(spec, 2);
    const std::optional<CheckpointState> newest = Newest();
    ASSERT_TRUE(newest.has_value());
    EXPECT_EQ(newest->step, stopped[0].step);
    ExpectContinuesAfter(stopped, spec, undisturbed);
  };
  memory_ = left_;
  without_memory_ = 1;
  expect_saved();
  // As with a file system in memory that is full.
  memory_ = MemoryCheckpoints("/dev/null/job");
  without_memory_.reset();
  expect_saved();
}

// As with a file system in memory that is full.
TEST_F(TrainerMemoryTest, ContinuesWithoutStateIfItCannotBeWritten) {
  const v1::JobSpec spec = SpecWithState();
  const std::string undisturbed = StateOfUndisturbed(spec, 2);
  memory_ = MemoryCheckpoints("/dev/null/job");
  const auto results =
      Train(spec, 2, /*generation=*/1, [&](uint32_t, const v1::Progress& progress) {
        if (progress.step() >= 5) LoseRank(1);
      });
  EXPECT_FALSE(results[0].status.ok());
  EXPECT_GE(results[0].left_step.value_or(0), 5u);
  const Result rest = Train(spec, 2, /*generation=*/2)[0];
  ASSERT_TRUE(rest.status.ok()) << rest.status;
  EXPECT_EQ(rest.summary.resumed_from_step(), 0u);
  EXPECT_TRUE(SavedTensors() == undisturbed);
}

TEST_F(TrainerMemoryTest, LeavesNothingAfterOtherFailures) {
  memory_ = left_;
  v1::JobSpec spec = SpecWithState();
  spec.mutable_train()->mutable_optimizer()->set_learning_rate(1e38);
  const Result result = Train(spec, 2)[0];
  ASSERT_FALSE(result.status.ok());
  EXPECT_FALSE(result.left_step.has_value());
  EXPECT_FALSE(fs::exists(node_.path() + "/job"));
}

// A stop that follows the loss of a peer must not end the process before its state is left.
TEST_F(TrainerMemoryTest, StopWaitsForTheState) {
  RankRequests requests;
  requests.AcceptStops();
  requests.SetLeavesState(true);
  requests.Abort();
  EXPECT_TRUE(requests.RequestStop(SIGTERM));
  RankRequests left;
  left.AcceptStops();
  left.SetLeavesState(true);
  left.Abort();
  left.SetLeavesState(false);
  EXPECT_FALSE(left.RequestStop(SIGTERM));
}

TEST_F(TrainerMemoryTest, StopDoesNotWaitForADeviceThatNeverAnswers) {
  for (const bool has_state : {false, true}) {
    RankRequests requests;
    requests.AcceptStops();
    requests.SetLeavesState(true);
    requests.Abort();
    if (has_state) requests.BeginToLeave();
    requests.GiveUpState();
    EXPECT_EQ(requests.RequestStop(SIGTERM), has_state);
  }
}

}  // namespace
}  // namespace muster::train
