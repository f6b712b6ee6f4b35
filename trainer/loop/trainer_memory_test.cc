// Ranks that lose a peer leave their state in memory, and the next generation continues from it.
#include <algorithm>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <random>
#include <string>
#include <thread>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
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
    return job;
  }

  void LoseRank(uint32_t rank) {
    groups_[rank].world->Abort(absl::UnavailableError("the rank was lost"));
  }

  std::string StateOfUndisturbed(const v1::JobSpec& spec, uint32_t world) {
    const auto memory = std::exchange(memory_, std::nullopt);
    EXPECT_TRUE(Train(spec, world)[0].status.ok());
    std::string state = SavedTensors();
    fs::remove_all(checkpoints_.path());
    memory_ = memory;
    return state;
  }

  data::TemporaryDirectory node_;
  const MemoryCheckpoints left_{node_.path() + "/job"};
};

// A rank is lost between steps or in any phase of a step, so that the others fail at different
// points of it, and may even have completed another number of steps.
TEST_F(TrainerMemoryTest, ContinuesBitEqualFromAnyMoment) {
  const v1::JobSpec spec = SpecWithState();
  constexpr uint32_t kWorld = 3;
  const std::string undisturbed = StateOfUndisturbed(spec, kWorld);
  memory_ = left_;
  std::mt19937 random(1);
  int interrupted = 0;
  for (int round = 0; round < 20; ++round) {
    const uint64_t at_step = random() % (kSteps - 1);
    const auto delay = absl::Microseconds(random() % 20'000);
    std::atomic<bool> due = false;
    std::atomic<bool> over = false;
    std::thread loser([&] {
      while (!due && !over) std::this_thread::yield();
      absl::SleepFor(delay);
      if (!over) LoseRank(1);
    });
    const auto results =
        Train(spec, kWorld, /*generation=*/1, [&](uint32_t rank, const v1::Progress& progress) {
          if (rank == 0 && progress.phase() == "training" && progress.step() == at_step) due = true;
        });
    over = true;
    loser.join();
    if (!results[0].status.ok()) {
      ++interrupted;
      uint64_t newest = 0;
      for (const Result& result : results) {
        ASSERT_TRUE(result.left_step.has_value()) << result.status;
        newest = std::max(newest, *result.left_step);
      }
      EXPECT_GE(newest, at_step);
      const Result rest = Train(spec, kWorld, /*generation=*/2)[0];
      ASSERT_TRUE(rest.status.ok()) << rest.status;
      EXPECT_EQ(rest.summary.resumed_from_step(), newest);
      EXPECT_TRUE(fs::is_empty(node_.path() + "/job"));
    }
    EXPECT_TRUE(SavedTensors() == undisturbed) << "round " << round << ", step " << at_step;
    fs::remove_all(checkpoints_.path());
  }
  EXPECT_GE(interrupted, 10);
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

}  // namespace
}  // namespace muster::train
