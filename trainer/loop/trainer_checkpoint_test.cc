// Requests to a training, and when and how its checkpoints are written.
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/proto_time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "spec/spec.h"
#include "trainer/data/testing.h"
#include "trainer/exit_code.h"
#include "trainer/loop/testing.h"
#include "trainer/loop/trainer.h"

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

struct Failure {
  uint64_t step = 0;
  absl::Status status;
};

struct Result {
  absl::Status status;
  v1::TrainSummary summary;
  uint64_t step = 0;
};

class TrainerCheckpointTest : public ::testing::Test {
 protected:
  // 1000 training samples; 5 steps per epoch.
  void SetUp() override { data::WriteSyntheticDataset(data_.path(), 1000, 100); }

  v1::JobSpec Spec(uint64_t steps) const {
    v1::JobSpec job;
    v1::TrainSpec& spec = *job.mutable_train();
    spec.mutable_model()->set_name("mlp");
    spec.mutable_dataset()->set_name("fashion_mnist");
    spec.mutable_dataset()->set_path(data_.path());
    spec.set_max_steps(steps);
    spec.set_global_batch(200);
    spec.mutable_optimizer()->set_name("sgd");
    spec.mutable_optimizer()->set_learning_rate(0.01);
    spec.mutable_optimizer()->set_momentum(0.9);
    spec.set_seed(1);
    *spec.mutable_checkpoint()->mutable_every() = ToProto(absl::ZeroDuration());
    return job;
  }

  using AtProgress = std::function<void(uint32_t rank, const v1::Progress&)>;

  // Trains with one thread per rank. A rank that fails leaves the world, as if its process ended.
  std::vector<Result> Train(v1::JobSpec spec, uint32_t world, uint64_t generation = 1,
                            const AtProgress& at_progress = nullptr) {
    spec::ApplyDefaults(spec);
    groups_ = MakeLoopbackWorld(world);
    requests_.clear();
    for (uint32_t rank = 0; rank < world; ++rank) {
      requests_.push_back(std::make_unique<RankRequests>());
    }
    CheckpointOptions checkpoints = {checkpoints_.path(), "job", generation, keep_};
    checkpoints.keep_best = spec.train().checkpoint().keep_best();
    const auto directory = CheckpointDirectory::OpenForWriting(checkpoints);
    EXPECT_TRUE(directory.ok()) << directory.status();
    const auto newest = directory->FindNewestValid();
    EXPECT_TRUE(newest.ok()) << newest.status();
    std::vector<Result> results(world);
    std::vector<std::thread> threads;
    for (uint32_t rank = 0; rank < world; ++rank) {
      threads.emplace_back([&, rank] {
        Result& result = results[rank];
        auto setup = SetUpTraining(spec, world, "");
        result.status = setup.status();
        if (!result.status.ok()) return;
        TrainerOptions options;
        options.job_id = "job";
        options.generation = generation;
        options.checkpoints = *directory;
        options.shards_checkpoints = shards_;
        if (newest->has_value()) {
          options.resume =
              ResumePoint{.rank = 0, .step = (*newest)->state.step, .name = (*newest)->name};
        }
        options.requests = requests_[rank].get();
        options.on_checkpoint = [this](const CheckpointRef& checkpoint) {
          written_.push_back(checkpoint.step);
        };
        options.on_checkpoint_failure = [this](uint64_t step, const absl::Status& status) {
          failures_.push_back({step, status});
          if (at_failure_ != nullptr) at_failure_();
        };
        options.progress = [rank, &at_progress](const v1::Progress& progress) {
          if (at_progress != nullptr) at_progress(rank, progress);
        };
        Trainer trainer(*std::move(setup), &groups_[rank], std::move(options));
        auto summary = trainer.Run();
        result.status = summary.status();
        result.step = trainer.step();
        if (summary.ok()) {
          result.summary = *std::move(summary);
        } else {
          groups_[rank].world->Abort(absl::AbortedError("the rank has ended"));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    return results;
  }

  std::optional<CheckpointState> Newest() const {
    const auto found = CheckpointDirectory::OpenReadOnly(checkpoints_.path()).FindNewestValid();
    EXPECT_TRUE(found.ok()) << found.status();
    return found.ok() && found->has_value() ? std::optional((*found)->state) : std::nullopt;
  }
  // Expects the next generation to continue after `step` and to end like a training that was never
  // interrupted.
  void ExpectContinues(const v1::JobSpec& spec, uint32_t world, uint64_t step) {
    ASSERT_TRUE(Newest().has_value());
    EXPECT_EQ(Newest()->step, step);
    const Result rest = Train(spec, world, 2)[0];
    ASSERT_TRUE(rest.status.ok()) << rest.status;
    EXPECT_EQ(rest.summary.resumed_from_step(), step);
    fs::remove_all(checkpoints_.path());
    const Result whole = Train(spec, world)[0];
    ASSERT_TRUE(whole.status.ok()) << whole.status;
    EXPECT_EQ(rest.summary.weights_digest(), whole.summary.weights_digest());
  }
  // Makes the directory inaccessible, or accessible again.
  void SetAccessible(bool accessible) {
    const std::string aside = checkpoints_.path() + "-aside";
    fs::rename(accessible ? aside : checkpoints_.path(), accessible ? checkpoints_.path() : aside);
  }

  data::TemporaryDirectory data_;
  data::TemporaryDirectory checkpoints_;
  std::vector<ProcessGroups> groups_;
  std::vector<std::unique_ptr<RankRequests>> requests_;
  uint32_t keep_ = 100;
  bool shards_ = false;
  std::vector<uint64_t> written_;
  std::vector<Failure> failures_;
  std::function<void()> at_failure_;
};

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

TEST_F(TrainerCheckpointTest, SavesBestStateWithItsEvaluation) {
  v1::JobSpec spec = Spec(25);
  spec.mutable_train()->set_evaluate_every_epochs(1);
  spec.mutable_train()->mutable_checkpoint()->set_keep_best("test_loss");
  const std::vector<Result> results = Train(spec, 2);
  ASSERT_TRUE(results[0].status.ok()) << results[0].status;
  // The loss falls in each epoch.
  EXPECT_THAT(written_, ElementsAre(5, 10, 15, 20, 25));
  for (const v1::Evaluation& evaluation : results[0].summary.evaluations()) {
    SCOPED_TRACE(evaluation.step());
    const auto state =
        ReadState(absl::StrFormat("%s/step-%08d.g1", checkpoints_.path(), evaluation.step()));
    ASSERT_TRUE(state.ok()) << state.status();
    EXPECT_EQ(state->test_loss, evaluation.test_loss());
    EXPECT_EQ(state->test_accuracy, evaluation.test_accuracy());
  }
}

TEST_F(TrainerCheckpointTest, KnowsBestStateOfEarlierGeneration) {
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

TEST_F(TrainerCheckpointTest, SucceedsWithoutFinalCheckpoint) {
  const Result result = Train(Spec(10), 1, 1, [&](uint32_t, const v1::Progress& progress) {
    if (progress.step() == 5) SetAccessible(false);
  })[0];
  EXPECT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(result.summary.steps(), 10);
  EXPECT_TRUE(result.summary.checkpoint().empty());
  ASSERT_THAT(failures_, SizeIs(1));
  EXPECT_EQ(failures_[0].step, 10);
  SetAccessible(true);
}

TEST_F(TrainerCheckpointTest, FailsWithoutRequiredCheckpoint) {
  for (const uint64_t every_steps : {10, 0}) {
    v1::JobSpec spec = Spec(40);
    spec.mutable_train()->mutable_checkpoint()->set_every_steps(every_steps);
    spec.mutable_train()->mutable_checkpoint()->set_required(true);
    const std::vector<Result> results =
        Train(spec, 2, 1, [&](uint32_t rank, const v1::Progress& progress) {
          if (rank == 0 && progress.step() == 5) SetAccessible(false);
        });
    EXPECT_EQ(ExitCodeOf(results[0].status), kExitCannotCreate) << results[0].status;
    EXPECT_THAT(std::string(results[0].status.message()), HasSubstr(checkpoints_.path()));
    EXPECT_FALSE(results[1].status.ok());
    EXPECT_THAT(failures_, SizeIs(1));
    failures_.clear();
    SetAccessible(true);
  }
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
