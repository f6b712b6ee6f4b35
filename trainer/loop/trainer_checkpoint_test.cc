// Requests to a training, and when and how its checkpoints are written.
#include <algorithm>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "common/time/proto_time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/host_memory_device.h"
#include "trainer/exit_code.h"
#include "trainer/loop/trainer_checkpoint_testing.h"

namespace muster::train {
namespace {

namespace fs = std::filesystem;

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Le;
using ::testing::Lt;
using ::testing::SizeIs;

TEST_F(TrainerCheckpointTest, RankAskedToStopSavesItsState) {
  const v1::JobSpec spec = Spec(300);
  const Result result = Train(spec, 1, 1, [&](uint32_t, const v1::Progress& progress) {
    if (progress.step() == 7) requests_[0]->RequestStop(SIGTERM);
  })[0];
  EXPECT_TRUE(absl::IsCancelled(result.status)) << result.status;
  EXPECT_EQ(result.step, 7);
  EXPECT_THAT(written_, ElementsAre(7));
  ExpectContinues(spec, 1, 7);
}

TEST_F(TrainerCheckpointTest, AllRanksSaveWhenOneIsAskedToStop) {
  const v1::JobSpec spec = Spec(300);
  const std::vector<Result> results =
      Train(spec, 3, 1, [&](uint32_t rank, const v1::Progress& progress) {
        if (rank == 2 && progress.step() == 7) requests_[2]->RequestStop(SIGTERM);
      });
  EXPECT_TRUE(absl::IsCancelled(results[2].status)) << results[2].status;
  EXPECT_THAT(results[2].step, AllOf(Ge(7u), Le(7u + 64)));
  for (const uint32_t rank : {0, 1}) {
    // They were not asked, and lose their peer.
    EXPECT_FALSE(results[rank].status.ok());
    EXPECT_FALSE(absl::IsCancelled(results[rank].status)) << results[rank].status;
  }
  ExpectContinues(spec, 3, results[2].step);
}

TEST_F(TrainerCheckpointTest, StopSavesAgainOnlyWhatIsNotSaved) {
  v1::JobSpec spec = Spec(300);
  spec.mutable_train()->mutable_checkpoint()->set_every_steps(7);
  const Result result = Train(spec, 1, 1, [&](uint32_t, const v1::Progress& progress) {
    if (progress.step() == 7 && progress.phase() == "checkpointing") {
      requests_[0]->RequestStop(SIGTERM);
    }
  })[0];
  EXPECT_TRUE(absl::IsCancelled(result.status)) << result.status;
  EXPECT_EQ(result.step, 8);
  EXPECT_THAT(written_, ElementsAre(7, 8));
}

TEST_F(TrainerCheckpointTest, StopEndsEvaluationOnAllRanks) {
  v1::JobSpec spec = Spec(300);
  spec.mutable_train()->set_evaluate_every_epochs(2);
  v1::JobSpec contrastive = spec;
  contrastive.mutable_train()->mutable_objective()->set_name("nt_xent");
  contrastive.mutable_train()->mutable_objective()->set_temperature(0.5);
  contrastive.mutable_train()->set_global_batch(10);  // 100 steps per epoch, 10 test batches
  for (const auto& [job, step] : {std::pair(spec, 10u), std::pair(contrastive, 200u)}) {
    SCOPED_TRACE(step);
    written_.clear();
    const std::vector<Result> results =
        Train(job, 2, 1, [&](uint32_t rank, const v1::Progress& progress) {
          if (rank == 1 && progress.phase() == "evaluating") requests_[1]->RequestStop(SIGTERM);
        });
    EXPECT_TRUE(absl::IsCancelled(results[1].status)) << results[1].status;
    EXPECT_EQ(results[1].step, step);
    EXPECT_THAT(written_, ElementsAre(step));
    fs::remove_all(checkpoints_.path());
  }
}

// There is nothing to save: the process ends at once.
TEST_F(TrainerCheckpointTest, RefusesStopsAfterTheFinalCheckpoint) {
  bool evaluating = true;
  Train(Spec(5), 1, 1, [&](uint32_t, const v1::Progress& progress) {
    if (progress.phase() == "evaluating") evaluating = requests_[0]->RequestStop(SIGTERM);
  });
  EXPECT_FALSE(evaluating);
  EXPECT_THAT(written_, ElementsAre(5));
}

TEST_F(TrainerCheckpointTest, StopAtTheEndSavesFinalState) {
  const Result result = Train(Spec(5), 1, 1, [&](uint32_t, const v1::Progress& progress) {
    if (progress.step() == 5) requests_[0]->RequestStop(SIGTERM);
  })[0];
  EXPECT_TRUE(absl::IsCancelled(result.status)) << result.status;
  EXPECT_THAT(written_, ElementsAre(5));
}

TEST_F(TrainerCheckpointTest, WritesCheckpointOnRequest) {
  const std::vector<Result> results =
      Train(Spec(400), 2, 1, [&](uint32_t rank, const v1::Progress& progress) {
        if (rank == 0 && progress.step() == 20 && progress.phase() == "training") {
          requests_[0]->RequestCheckpoint();
        }
      });
  EXPECT_TRUE(results[0].status.ok()) << results[0].status;
  ASSERT_THAT(written_, SizeIs(2));
  EXPECT_THAT(written_[0], AllOf(Ge(20u), Le(20u + 64)));
  EXPECT_EQ(written_[1], 400);
  EXPECT_EQ(results[0].summary.checkpoint(), checkpoints_.path() + "/step-00000400.g1");
}

TEST_F(TrainerCheckpointTest, WritesCheckpointsByTime) {
  v1::JobSpec spec = Spec(200);
  EXPECT_TRUE(Train(spec, 2)[0].status.ok());
  EXPECT_THAT(written_, ElementsAre(200));  // only at the end
  fs::remove_all(checkpoints_.path());
  written_.clear();

  *spec.mutable_train()->mutable_checkpoint()->mutable_every() = ToProto(absl::Milliseconds(1));
  const v1::TrainSummary often = Train(spec, 2)[0].summary;
  ASSERT_THAT(written_, SizeIs(Gt(2u)));
  EXPECT_THAT(written_[0], Lt(20u));
  EXPECT_EQ(written_.back(), 200);
  EXPECT_THAT(failures_, IsEmpty());
}

TEST_F(TrainerCheckpointTest, ReportsTimeThatCheckpointsCost) {
  v1::JobSpec spec = Spec(6);
  spec.mutable_train()->mutable_checkpoint()->set_every_steps(2);
  std::map<uint64_t, double> stall;  // by step
  const auto at_progress = [&stall](uint32_t, const v1::Progress& progress) {
    stall[progress.step()] = progress.checkpoint_stall_seconds();
  };
  ASSERT_TRUE(Train(spec, /*world=*/1, /*generation=*/1, at_progress)[0].status.ok());
  EXPECT_EQ(stall.at(1), 0);
  EXPECT_GT(stall.at(3), 0) << "after the checkpoint of step 2";
  EXPECT_GT(stall.at(6), stall.at(3)) << "with the final one, which the training waits for";
}

// A checkpoint that is due while another one is being written is taken afterwards.
TEST_F(TrainerCheckpointTest, WritesOneCheckpointAtATime) {
  v1::JobSpec spec = Spec(200);
  spec.mutable_train()->mutable_checkpoint()->set_every_steps(1);
  const Result result = Train(spec, 2)[0];
  EXPECT_TRUE(result.status.ok()) << result.status;
  ASSERT_THAT(written_, SizeIs(Gt(2u)));
  EXPECT_EQ(written_[0], 1);
  EXPECT_EQ(written_.back(), 200);
  EXPECT_TRUE(std::is_sorted(written_.begin(), written_.end()));
  EXPECT_EQ(Newest()->step, 200);
}

TEST_F(TrainerCheckpointTest, SnapshotsDoNotChangeTheTraining) {
  v1::JobSpec spec = Spec(60);
  const std::string plain = Train(spec, 2)[0].summary.weights_digest();
  fs::remove_all(checkpoints_.path());
  spec.mutable_train()->mutable_checkpoint()->set_every_steps(1);
  EXPECT_EQ(Train(spec, 2)[0].summary.weights_digest(), plain);
}

TEST_F(TrainerCheckpointTest, EvaluatesBeforeItSavesIfBothAreDue) {
  v1::JobSpec spec = Spec(8);
  spec.mutable_train()->set_evaluate_every_epochs(1);
  spec.mutable_train()->mutable_checkpoint()->set_every_steps(5);
  const v1::TrainSummary summary = Train(spec, 2)[0].summary;
  EXPECT_THAT(written_, ElementsAre(5, 8));
  const auto state = ReadState(checkpoints_.path() + "/step-00000005.g1");
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ(state->test_loss, summary.evaluations(0).test_loss());
  // Nothing was evaluated before the final checkpoint.
  EXPECT_FALSE(ReadState(checkpoints_.path() + "/step-00000008.g1")->test_loss.has_value());
}

TEST_F(TrainerCheckpointTest, ContinuesWhenCheckpointCannotBeWritten) {
  v1::JobSpec spec = Spec(40);
  spec.mutable_train()->mutable_checkpoint()->set_every_steps(10);
  at_failure_ = [this] {
    if (failures_.size() == 1) SetAccessible(true);
  };
  const std::vector<Result> results =
      Train(spec, 2, 1, [&](uint32_t rank, const v1::Progress& progress) {
        if (rank == 0 && progress.step() == 5) SetAccessible(false);
      });
  for (const Result& result : results) EXPECT_TRUE(result.status.ok()) << result.status;
  ASSERT_THAT(failures_, SizeIs(1));
  EXPECT_EQ(failures_[0].step, 10);
  EXPECT_THAT(std::string(failures_[0].status.message()), HasSubstr(checkpoints_.path()));
  // The next ones are written.
  EXPECT_EQ(written_.back(), 40);
}

TEST_F(TrainerCheckpointTest, WritesPartsAfterPartsThatCannotBeWritten) {
  v1::JobSpec spec = Spec(40);
  spec.mutable_train()->mutable_checkpoint()->set_every_steps(10);
  spec.mutable_train()->mutable_strategy()->set_shard_optimizer(true);
  shards_ = true;
  at_failure_ = [this] { SetAccessible(true); };
  const std::vector<Result> results =
      Train(spec, 2, 1, [&](uint32_t rank, const v1::Progress& progress) {
        if (rank == 0 && progress.step() == 5) SetAccessible(false);
      });
  for (const Result& result : results) EXPECT_TRUE(result.status.ok()) << result.status;
  ASSERT_THAT(failures_, SizeIs(1));
  EXPECT_EQ(failures_[0].step, 10);
  EXPECT_EQ(written_.back(), 40);
  EXPECT_TRUE(fs::exists(checkpoints_.path() + "/step-00000040.g1/model.safetensors.index.json"));
}

// A CPU on which the gradients of a loss overflow, but not the loss itself.
class OverflowingDevice final : public kernels::HostMemoryDevice {
 public:
  OverflowingDevice() : kernels_(kernels::CpuDevice().kernels()) {
    overflows_ = false;
    kernels_.softmax_cross_entropy = &Loss;
  }

  // From now on.
  void Overflow() { overflows_ = true; }

  std::string name() const override { return "overflowing"; }
  const kernels::KernelTable& kernels() const override { return kernels_; }
  absl::StatusOr<std::unique_ptr<kernels::Convolution>> MakeConvolution(
      const kernels::ConvolutionShape& shape, const kernels::ConvolutionOptions& options) override {
    return kernels::CpuDevice().MakeConvolution(shape, options);
  }

 private:
  static void Loss(const kernels::CrossEntropyOptions& options, const float* logits,
                   const int32_t* labels, const double* loss_scale, float* dlogits,
                   kernels::LossResult* result) {
    kernels::CpuDevice().kernels().softmax_cross_entropy(options, logits, labels, loss_scale,
                                                         dlogits, result);
    if (overflows_ && dlogits != nullptr) dlogits[0] = std::numeric_limits<float>::infinity();
  }

  static inline std::atomic<bool> overflows_;
  kernels::KernelTable kernels_;
};

TEST_F(TrainerCheckpointTest, PublishesNothingAfterGradientThatOverflows) {
  OverflowingDevice device;
  device_ = &device;
  v1::JobSpec spec = Spec(4);
  spec.mutable_train()->mutable_checkpoint()->set_every_steps(1);
  const Result result = Train(spec, 1, 1, [&](uint32_t, const v1::Progress& progress) {
    if (progress.step() == 3 && progress.phase() == "training") device.Overflow();
  })[0];
  EXPECT_EQ(ExitCodeOf(result.status), kExitDiverged) << result.status;
  EXPECT_EQ(result.step, 4);
  // No later step fails because of its loss.
  EXPECT_THAT(std::string(result.status.message()), HasSubstr("values that are NaN or infinite"));
  ASSERT_FALSE(written_.empty());
  EXPECT_LT(written_.back(), 4);
  ASSERT_TRUE(Newest().has_value());
  EXPECT_EQ(Newest()->step, written_.back());
  std::vector<std::string> folders;
  for (const auto& entry : fs::directory_iterator(checkpoints_.path())) {
    folders.push_back(entry.path().filename());
  }
  EXPECT_THAT(folders, SizeIs(written_.size()));
}

class FailingOperations final : public DirectoryOperations {
 public:
  void FailToList() { fails_to_list_ = true; }  // once
  void FailToCreate(const std::string& name) { not_created_ = name; }

  absl::StatusOr<std::vector<std::string>> List(const std::string& directory) const override {
    if (fails_to_list_.exchange(false)) return absl::UnknownError("cannot list " + directory);
    return real_.List(directory);
  }
  absl::StatusOr<CheckpointState> ReadState(const std::string& folder) const override {
    return real_.ReadState(folder);
  }
  absl::Status Create(const std::string& folder) const override {
    if (!not_created_.empty() && absl::StrContains(folder, not_created_)) {
      return absl::ResourceExhaustedError("no space for " + folder);
    }
    return real_.Create(folder);
  }
  int Rename(const std::string& from, const std::string& to) const override {
    return real_.Rename(from, to);
  }
  absl::Status Delete(const std::string& folder) const override { return real_.Delete(folder); }
  absl::Status Sync(const std::string& directory) const override { return real_.Sync(directory); }

 private:
  mutable std::atomic<bool> fails_to_list_ = false;
  std::string not_created_;
  const DirectoryOperations& real_ = RealDirectoryOperations();
};

// Rank 0 fails before it creates the folder; the other ranks create it and write their parts.
TEST_F(TrainerCheckpointTest, FailedCheckpointInPartsLeavesNothing) {
  FailingOperations operations;
  operations_ = &operations;
  shards_ = true;
  v1::JobSpec spec = Spec(14);
  spec.mutable_train()->mutable_strategy()->set_shard_optimizer(true);
  for (const bool final : {false, true}) {
    const uint64_t failing = final ? 14 : 10;
    spec.mutable_train()->mutable_checkpoint()->set_every_steps(final ? 0 : 10);
    const std::vector<Result> results =
        Train(spec, 3, 1, [&](uint32_t rank, const v1::Progress& progress) {
          if (rank == 0 && progress.step() == failing && progress.phase() == "training") {
            operations.FailToList();
          }
        });
    EXPECT_EQ(results[0].status.ok(), !final) << results[0].status;
    ASSERT_THAT(failures_, SizeIs(1));
    EXPECT_EQ(failures_[0].step, failing);
    std::vector<std::string> folders;
    for (const auto& entry : fs::directory_iterator(checkpoints_.path())) {
      folders.push_back(entry.path().filename());
    }
    if (final) {
      EXPECT_THAT(folders, IsEmpty());
    } else {
      EXPECT_THAT(folders, ElementsAre("step-00000014.g1"));
    }
    fs::remove_all(checkpoints_.path());
    failures_.clear();
  }
}

TEST_F(TrainerCheckpointTest, SucceedsWithoutOptionalFinalCheckpoint) {
  v1::JobSpec spec = Spec(10);
  spec.mutable_train()->mutable_checkpoint()->set_final("optional");
  const Result result = Train(spec, 1, 1, [&](uint32_t, const v1::Progress& progress) {
    if (progress.step() == 5) SetAccessible(false);
  })[0];
  EXPECT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(result.summary.steps(), 10);
  EXPECT_TRUE(result.summary.checkpoint().empty());
  ASSERT_THAT(failures_, SizeIs(1));
  EXPECT_EQ(failures_[0].step, 10);
  SetAccessible(true);
}

// All ranks fail, with the same reason.
TEST_F(TrainerCheckpointTest, FailsWithoutFinalCheckpoint) {
  const v1::JobSpec ddp = Spec(10);
  v1::JobSpec sharded = ddp;
  sharded.mutable_train()->mutable_strategy()->set_shard_optimizer(true);
  v1::JobSpec pipeline = ddp;
  pipeline.mutable_train()->mutable_strategy()->set_name("pipeline");
  pipeline.mutable_train()->mutable_strategy()->mutable_pipeline()->set_stages(2);
  v1::JobSpec hybrid = ddp;
  hybrid.mutable_train()->mutable_strategy()->set_name("hybrid");
  v1::JobSpec dp = ddp;
  dp.mutable_train()->mutable_strategy()->set_name("dp");
  shards_ = true;
  for (const v1::JobSpec& spec : {ddp, sharded, pipeline, hybrid, dp}) {
    SCOPED_TRACE(spec.train().strategy().ShortDebugString());
    const uint32_t world = spec.train().strategy().name() == "dp" ? 1 : 2;
    const std::vector<Result> results =
        Train(spec, world, 1, [&](uint32_t rank, const v1::Progress& progress) {
          if (rank == 0 && progress.step() == 5) SetAccessible(false);
        });
    for (const Result& result : results) {
      EXPECT_EQ(ExitCodeOf(result.status), kExitCannotCreate) << result.status;
      EXPECT_TRUE(IsPermanent(ExitCodeOf(result.status)));
      EXPECT_EQ(result.status.message(), results[0].status.message());
    }
    EXPECT_THAT(std::string(results[0].status.message()),
                AllOf(HasSubstr("could not write the final checkpoint of step 10 to " +
                                checkpoints_.path() + ": "),
                      HasSubstr("No such file or directory; there is no earlier checkpoint")));
    ASSERT_THAT(failures_, SizeIs(1));
    EXPECT_EQ(failures_[0].step, 10);
    failures_.clear();
    SetAccessible(true);
  }
}

TEST_F(TrainerCheckpointTest, FailureOfFinalCheckpointNamesTheLastGoodOne) {
  FailingOperations operations;
  operations.FailToCreate("step-00000010");
  operations_ = &operations;
  v1::JobSpec spec = Spec(10);
  spec.mutable_train()->mutable_checkpoint()->set_every_steps(4);
  const std::vector<Result> results = Train(spec, 2);
  EXPECT_EQ(ExitCodeOf(results[1].status), kExitCannotCreate) << results[1].status;
  EXPECT_THAT(std::string(results[1].status.message()),
              AllOf(HasSubstr("no space for "), HasSubstr("the last good checkpoint is " +
                                                          checkpoints_.path() + "/step-0000000")));
  // In a later generation, it is the one that was resumed from.
  EXPECT_THAT(std::string(Train(spec, 2, 2)[0].status.message()), HasSubstr(".g2"));
}

TEST_F(TrainerCheckpointTest, NeedsNoFinalCheckpointWithoutCheckpoints) {
  v1::JobSpec spec = Spec(10);
  spec.mutable_train()->mutable_checkpoint()->set_keep(0);
  EXPECT_TRUE(Train(spec, 2)[0].status.ok());
  EXPECT_THAT(written_, IsEmpty());
  EXPECT_THAT(failures_, IsEmpty());
}

// The checkpoint that is being written when the training fails is finished.
TEST_F(TrainerCheckpointTest, FailingTrainingFinishesItsCheckpoint) {
  v1::JobSpec spec = Spec(1'000'000);
  spec.mutable_train()->mutable_checkpoint()->set_every_steps(10);
  const std::vector<Result> results =
      Train(spec, 2, 1, [&](uint32_t rank, const v1::Progress& progress) {
        if (rank == 1 && progress.step() == 11) {
          groups_[1].world->Abort(absl::AbortedError("enough"));
        }
      });
  for (const Result& result : results) EXPECT_FALSE(result.status.ok());
  EXPECT_THAT(written_, ElementsAre(10));
  EXPECT_EQ(Newest()->step, 10);
}

}  // namespace
}  // namespace muster::train
