// Checkpoints of the best state: when they are written, and that the training does not wait.
#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/checkpoint/directory_operations.h"
#include "trainer/loop/trainer_checkpoint_testing.h"

namespace muster::train {
namespace {

namespace fs = std::filesystem;

using ::testing::ElementsAre;
using ::testing::SizeIs;

using TrainerBestTest = TrainerCheckpointTest;

TEST_F(TrainerBestTest, SavesBestStateWithItsEvaluation) {
  v1::JobSpec spec = Spec(25);
  spec.mutable_train()->set_evaluate_every_epochs(1);
  spec.mutable_train()->mutable_checkpoint()->set_keep_best("test_loss");
  const std::vector<Result> results = Train(spec, 2);
  ASSERT_TRUE(results[0].status.ok()) << results[0].status;
  // The loss falls in each epoch. A state that still waits for the disk is replaced by a better
  // one.
  ASSERT_FALSE(written_.empty());
  EXPECT_EQ(written_.front(), 5);
  EXPECT_EQ(written_.back(), 25);
  for (const v1::Evaluation& evaluation : results[0].summary.evaluations()) {
    if (!absl::c_linear_search(written_, evaluation.step())) continue;
    SCOPED_TRACE(evaluation.step());
    const auto state =
        ReadState(absl::StrFormat("%s/step-%08d.g1", checkpoints_.path(), evaluation.step()));
    ASSERT_TRUE(state.ok()) << state.status();
    EXPECT_EQ(state->test_loss, evaluation.test_loss());
    EXPECT_EQ(state->test_accuracy, evaluation.test_accuracy());
  }
}

// Publishes the checkpoint of one step, which is being written, only when that is allowed.
class SlowDisk final : public DirectoryOperations {
 public:
  explicit SlowDisk(uint64_t step) : slow_(absl::StrFormat("step-%08d", step)) {}

  void Allow() {
    if (!allowed_.HasBeenNotified()) allowed_.Notify();
  }
  // Whether the write was allowed before a training that waits for it would have to be ended.
  bool was_allowed() const { return was_allowed_.load(); }

  absl::StatusOr<std::vector<std::string>> List(const std::string& directory) const override {
    return RealDirectoryOperations().List(directory);
  }
  absl::StatusOr<CheckpointState> ReadState(const std::string& folder) const override {
    return RealDirectoryOperations().ReadState(folder);
  }
  absl::Status Create(const std::string& folder) const override {
    return RealDirectoryOperations().Create(folder);
  }
  int Rename(const std::string& from, const std::string& to) const override {
    if (absl::StrContains(to, slow_)) {
      was_allowed_ = allowed_.WaitForNotificationWithTimeout(absl::Seconds(20));
    }
    return RealDirectoryOperations().Rename(from, to);
  }
  absl::Status Delete(const std::string& folder) const override {
    return RealDirectoryOperations().Delete(folder);
  }
  absl::Status Sync(const std::string& directory) const override {
    return RealDirectoryOperations().Sync(directory);
  }

 private:
  const std::string slow_;
  absl::Notification allowed_;
  mutable std::atomic<bool> was_allowed_{false};
};

// A copy of the best state waits for the disk; the training does not.
TEST_F(TrainerBestTest, SavesBestStateWhileAnotherCheckpointIsBeingWritten) {
  v1::JobSpec spec = Spec(14);
  spec.mutable_train()->set_evaluate_every_epochs(1);
  spec.mutable_train()->mutable_checkpoint()->set_keep_best("test_loss");
  const std::string at_10 = checkpoints_.path() + "/step-00000010.g1";
  for (const bool shards : {false, true}) {
    SCOPED_TRACE(shards);
    shards_ = shards;
    spec.mutable_train()->mutable_strategy()->set_shard_optimizer(shards);
    const auto weights = [&]() -> std::map<std::string, std::string> {
      std::map<std::string, std::string> files;
      for (const auto& entry : fs::directory_iterator(at_10)) {
        const std::string name = entry.path().filename();
        if (!absl::EndsWith(name, ".safetensors")) continue;
        std::ifstream file(entry.path(), std::ios::binary);
        files[name] = {std::istreambuf_iterator<char>(file), {}};
      }
      return files;
    };
    ASSERT_TRUE(Train(spec, 2)[0].status.ok());
    const auto expected = weights();
    EXPECT_THAT(expected, SizeIs(shards ? 4 : 2));
    fs::remove_all(checkpoints_.path());
    written_.clear();

    SlowDisk disk(4);
    operations_ = &disk;
    spec.mutable_train()->mutable_checkpoint()->set_every_steps(4);
    const std::vector<Result> results =
        Train(spec, 2, 1, [&](uint32_t rank, const v1::Progress& progress) {
          if (rank == 0 && progress.step() == 12 && progress.phase() == "training") disk.Allow();
        });
    operations_ = &RealDirectoryOperations();
    spec.mutable_train()->mutable_checkpoint()->clear_every_steps();
    ASSERT_TRUE(results[0].status.ok()) << results[0].status;
    EXPECT_TRUE(disk.was_allowed());
    // The best state at step 10 replaces that at step 5, which waited for the disk, too.
    EXPECT_THAT(written_, ElementsAre(4, 10, 14));
    EXPECT_EQ(weights(), expected);
    EXPECT_EQ(ReadState(at_10)->test_loss, results[0].summary.evaluations(1).test_loss());
    fs::remove_all(checkpoints_.path());
    written_.clear();
  }
}

// Before a stop, the queue is written, and then the last state.
TEST_F(TrainerBestTest, StopSavesBestStateThatWaitsForTheDisk) {
  v1::JobSpec spec = Spec(300);
  spec.mutable_train()->set_evaluate_every_epochs(1);
  spec.mutable_train()->mutable_checkpoint()->set_keep_best("test_loss");
  spec.mutable_train()->mutable_checkpoint()->set_every_steps(4);
  SlowDisk disk(4);
  operations_ = &disk;
  const Result result = Train(spec, 1, 1, [&](uint32_t, const v1::Progress& progress) {
    if (progress.step() == 7 && progress.phase() == "training") {
      requests_[0]->RequestStop(SIGTERM);
      disk.Allow();
    }
  })[0];
  EXPECT_TRUE(absl::IsCancelled(result.status)) << result.status;
  EXPECT_TRUE(disk.was_allowed());
  EXPECT_THAT(written_, ElementsAre(4, 5, 7));
}

TEST_F(TrainerBestTest, KnowsBestStateOfEarlierGeneration) {
  v1::JobSpec spec = Spec(10);
  keep_ = 1;
  spec.mutable_train()->set_evaluate_every_epochs(1);
  spec.mutable_train()->mutable_checkpoint()->set_keep_best("test_loss");
  EXPECT_TRUE(Train(spec, 2)[0].status.ok());
  EXPECT_THAT(written_, ElementsAre(5, 10));
  // Diverging training: the later evaluations are worse.
  written_.clear();
  spec.mutable_train()->set_max_steps(25);
  spec.mutable_train()->mutable_optimizer()->set_learning_rate(-0.01);
  EXPECT_TRUE(Train(spec, 2, 2)[0].status.ok());
  EXPECT_THAT(written_, ElementsAre(25));
  EXPECT_TRUE(fs::exists(checkpoints_.path() + "/step-00000010.g2"));
  EXPECT_FALSE(fs::exists(checkpoints_.path() + "/step-00000005.g1"));
}

}  // namespace
}  // namespace muster::train
