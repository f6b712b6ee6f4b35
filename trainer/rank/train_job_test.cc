#include "trainer/rank/train_job.h"

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "spec/spec.h"
#include "trainer/data/testing.h"
#include "trainer/exit_code.h"
#include "trainer/loop/testing.h"

namespace muster::rank {
namespace {

using ::testing::HasSubstr;

// In-memory control plane of one generation: records the ranks' reports and chooses the resume
// point as the coordinator does.
class Generation {
 public:
  explicit Generation(uint32_t world_size)
      : world_size_(world_size), communicators_(train::MakeLoopbackGroup(world_size)) {}

  v1::World Join(uint32_t rank, const v1::JoinInfo& info) {
    absl::MutexLock lock(&mutex_);
    joined_[rank] = info;
    mutex_.Await(absl::Condition(
        +[](Generation* self) ABSL_EXCLUSIVE_LOCKS_REQUIRED(self->mutex_) {
          return self->joined_.size() == self->world_size_;
        },
        this));
    v1::World world;
    world.set_world_size(world_size_);
    if (const v1::JoinInfo& last = joined_.rbegin()->second; last.memory_size() > 0) {
      const v1::MemoryState& state = last.memory(0);
      world.set_resume_rank(joined_.rbegin()->first);
      world.set_resume_step(state.step());
      world.set_resume_generation(state.generation());
      world.add_resume_memory_ranks(world.resume_rank());
      return world;
    }
    for (const auto& [joined_rank, joined_info] : joined_) {
      if (!joined_info.has_checkpoint()) continue;
      if (world.has_resume_rank() && world.resume_step() >= joined_info.checkpoint_step()) continue;
      world.set_resume_rank(joined_rank);
      world.set_resume_step(joined_info.checkpoint_step());
      world.set_resume_job_id(joined_info.checkpoint_job_id());
    }
    return world;
  }
  std::unique_ptr<collectives::Communicator> TakeCommunicator(uint32_t rank) {
    return std::move(communicators_[rank]);
  }

 private:
  const uint32_t world_size_;
  std::vector<std::unique_ptr<collectives::Communicator>> communicators_;
  absl::Mutex mutex_;
  std::map<uint32_t, v1::JoinInfo> joined_ ABSL_GUARDED_BY(mutex_);
};

class InMemoryControlPlane final : public ControlPlane {
 public:
  InMemoryControlPlane(Generation* generation, uint32_t rank)
      : generation_(generation), rank_(rank) {}

  absl::StatusOr<v1::JoinResponse> Join(const v1::JoinInfo& info, absl::Duration) override {
    join_info = info;
    joined = true;
    v1::JoinResponse response;
    *response.mutable_world() = generation_->Join(rank_, info);
    return response;
  }
  absl::Status Barrier(absl::string_view, absl::Duration) override { return absl::OkStatus(); }
  absl::Status Put(absl::string_view, absl::string_view) override { return absl::OkStatus(); }
  absl::StatusOr<std::string> Get(absl::string_view, absl::Duration) override {
    return absl::NotFoundError("no keys here");
  }
  absl::Status ReportConnected() override {
    connected = true;
    return absl::OkStatus();
  }
  void ReportProgress(const v1::Progress& p) override {
    phases.push_back(p.phase());
    if (at_progress != nullptr) at_progress(p);
  }
  void ReportCheckpoint(const v1::CheckpointStatus& c) override { checkpoints.push_back(c); }
  absl::Status ReportFailure(const v1::FailureReport& f) override {
    failures.push_back(f);
    return absl::OkStatus();
  }
  absl::Status ReportSummary(const v1::TrainSummary& s) override {
    summaries.push_back(s);
    return absl::OkStatus();
  }
  void SetDirectiveHandler(std::function<void(const v1::Directive&)>) override {}

  v1::JoinInfo join_info;
  bool joined = false;
  bool connected = false;
  std::vector<std::string> phases;
  std::vector<v1::CheckpointStatus> checkpoints;
  std::vector<v1::FailureReport> failures;
  std::vector<v1::TrainSummary> summaries;
  std::function<void(const v1::Progress&)> at_progress;

 private:
  Generation* const generation_;
  const uint32_t rank_;
};

struct Outcome {
  int exit_code = -1;
  int stopped_by = 0;
  std::unique_ptr<InMemoryControlPlane> control;
};

class TrainJobTest : public ::testing::Test {
 protected:
  void SetUp() override {
    data::WriteSyntheticDataset(directory_.path(), 100, 10);
    v1::TrainSpec& spec = *launch_.mutable_spec()->mutable_train();
    spec.mutable_model()->set_name("mlp");
    spec.mutable_dataset()->set_name("fashion_mnist");
    spec.mutable_dataset()->set_path(directory_.path());
    spec.set_max_steps(10);
    spec.set_global_batch(20);
    spec.mutable_optimizer()->set_learning_rate(0.01);
    spec.mutable_checkpoint()->set_dir(directory_.path() + "/{node}/checkpoints");
    spec::ApplyDefaults(*launch_.mutable_spec());
    launch_.set_job_id("job");
    launch_.set_generation(1);
    launch_.set_world_size(1);
  }

  v1::TrainSpec& spec() { return *launch_.mutable_spec()->mutable_train(); }

  RankEnvironment Environment(uint32_t rank) const {
    RankEnvironment environment;
    environment.node_name = absl::StrCat("node-", rank);
    environment.cache_dir = directory_.path();
    environment.checkpoint_dir = directory_.path() + "/job-on-node";
    environment.identity.set_rank(rank);
    return environment;
  }

  // Runs the next generation of the job with one rank per node; `nodes[r]` is the node of rank r.
  std::vector<Outcome> RunWorld(const std::vector<uint32_t>& nodes) {
    launch_.set_world_size(nodes.size());
    Generation generation(nodes.size());
    std::vector<Outcome> outcomes(nodes.size());
    std::vector<std::thread> threads;
    for (uint32_t rank = 0; rank < nodes.size(); ++rank) {
      threads.emplace_back([&, rank] {
        RankEnvironment environment = Environment(rank);
        environment.node_name = absl::StrCat("node-", nodes[rank]);
        if (memory_) {
          environment.memory_dir = absl::StrCat(directory_.path(), "/memory-of-node-", nodes[rank]);
        }
        outcomes[rank] = Run(generation, environment);
      });
    }
    for (std::thread& thread : threads) thread.join();
    launch_.set_generation(launch_.generation() + 1);
    return outcomes;
  }

  Outcome Run(Generation& generation, const RankEnvironment& environment) {
    const uint32_t rank = environment.identity.rank();
    Outcome outcome;
    outcome.control = std::make_unique<InMemoryControlPlane>(&generation, rank);
    outcome.control->at_progress = at_progress_;
    TrainJob job(environment, launch_, outcome.control.get(), abort_switch_, &requests_,
                 [&](const collectives::WorldOptions&,
                     const train::RequiredGroups&) -> absl::StatusOr<train::ProcessGroups> {
                   if (!connect_error_.ok()) return connect_error_;
                   train::ProcessGroups groups;
                   groups.world = generation.TakeCommunicator(rank);
                   return groups;
                 });
    outcome.exit_code = job.Run();
    outcome.stopped_by = job.stopped_by();
    return outcome;
  }

  data::TemporaryDirectory directory_;
  v1::Launch launch_;
  AbortSwitch abort_;
  AbortSwitch* abort_switch_ = &abort_;
  train::RankRequests requests_;
  bool memory_ = false;  // ranks that lose a peer leave their state
  absl::Status connect_error_;
  std::function<void(const v1::Progress&)> at_progress_;
};

TEST_F(TrainJobTest, TrainsAndReportsSummary) {
  const std::vector<Outcome> outcomes = RunWorld({0, 1});
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.exit_code, 0);
    EXPECT_TRUE(outcome.control->connected);
    EXPECT_FALSE(outcome.control->join_info.has_checkpoint());
    EXPECT_FALSE(outcome.control->join_info.layout_digest().empty());
    ASSERT_EQ(outcome.control->join_info.fingerprint_size(), 4);
    EXPECT_EQ(outcome.control->join_info.fingerprint(1).name(), "dataset");
    EXPECT_EQ(outcome.control->join_info.fingerprint(2).value(), "O0 float32");
    EXPECT_EQ(outcome.control->phases.front(), "loading-data");
    EXPECT_EQ(outcome.control->phases.back(), "finished");
    EXPECT_TRUE(outcome.control->failures.empty());
  }
  ASSERT_EQ(outcomes[0].control->summaries.size(), 1);
  EXPECT_EQ(outcomes[0].control->summaries[0].steps(), 10);
  EXPECT_EQ(outcomes[0].control->summaries[0].device(), "cpu");
  EXPECT_TRUE(outcomes[1].control->summaries.empty());
  EXPECT_TRUE(std::filesystem::exists(directory_.path() + "/node-0/checkpoints/step-00000010.g1"));
}

TEST_F(TrainJobTest, ResumesFromNodeWithNewestCheckpoint) {
  ASSERT_EQ(RunWorld({0, 1})[0].exit_code, 0);
  spec().set_max_steps(15);
  // Rank 0 is now on a node without checkpoints; rank 1 is on node-0.
  const std::vector<Outcome> outcomes = RunWorld({1, 0});
  EXPECT_FALSE(outcomes[0].control->join_info.has_checkpoint());
  EXPECT_TRUE(outcomes[1].control->join_info.has_checkpoint());
  EXPECT_EQ(outcomes[1].control->join_info.checkpoint_step(), 10);
  // Claimed by generation 2, written by generation 1.
  EXPECT_EQ(outcomes[1].control->join_info.checkpoint_path(),
            directory_.path() + "/node-0/checkpoints/step-00000010.g2");
  EXPECT_EQ(outcomes[1].control->join_info.checkpoint_generation(), 1);
  ASSERT_EQ(outcomes[0].exit_code, 0);
  EXPECT_EQ(outcomes[0].control->summaries[0].resumed_from_step(), 10);
  EXPECT_EQ(outcomes[0].control->summaries[0].steps(), 15);
  EXPECT_TRUE(std::filesystem::exists(directory_.path() + "/node-1/checkpoints/step-00000015.g2"));
}

// Rank 1 loses its peer in generation 1; in generation 2 it is rank 1 again, and has the state.
TEST_F(TrainJobTest, ResumesFromStateInMemory) {
  spec().clear_checkpoint();
  spec().mutable_checkpoint()->set_keep(0);
  memory_ = true;
  at_progress_ = [this](const v1::Progress& progress) {
    if (progress.phase() == "training" && progress.step() >= 5) {
      abort_.Abort(absl::AbortedError("NodeLost: a peer was lost"));
    }
  };
  const std::vector<Outcome> interrupted = RunWorld({0, 1});
  EXPECT_NE(interrupted[1].exit_code, 0);
  EXPECT_EQ(interrupted[1].control->join_info.memory_size(), 0);
  at_progress_ = nullptr;
  AbortSwitch next_abort;
  abort_switch_ = &next_abort;
  const std::vector<Outcome> continued = RunWorld({2, 1});
  EXPECT_EQ(continued[0].control->join_info.memory_size(), 0);
  const v1::JoinInfo& join = continued[1].control->join_info;
  ASSERT_EQ(join.memory_size(), 1);
  EXPECT_EQ(join.memory(0).generation(), 1u);
  EXPECT_EQ(join.memory(0).parts(), 1u);
  EXPECT_GE(join.memory(0).step(), 5u);
  EXPECT_FALSE(join.has_checkpoint());
  ASSERT_EQ(continued[0].exit_code, 0);
  EXPECT_EQ(continued[0].control->summaries[0].resumed_from_step(), join.memory(0).step());
}

TEST_F(TrainJobTest, ReportsMissingDataBeforeJoining) {
  spec().mutable_dataset()->set_path("/does/not/exist");
  const Outcome outcome = std::move(RunWorld({0})[0]);
  EXPECT_EQ(outcome.exit_code, train::kExitNoInput);
  EXPECT_FALSE(outcome.control->joined);
  ASSERT_EQ(outcome.control->failures.size(), 1);
  const v1::FailureReport& failure = outcome.control->failures[0];
  EXPECT_TRUE(failure.not_retryable());
  EXPECT_EQ(failure.phase(), "loading-data");
  EXPECT_THAT(failure.message(), HasSubstr("node node-0: "));
  EXPECT_THAT(failure.message(), HasSubstr("/does/not/exist"));
}

// The CUDA library is neither next to this program nor in ../lib.
TEST_F(TrainJobTest, FailsWhenGpuCannotBeOpened) {
  launch_.mutable_spec()->mutable_resources()->set_device("gpu");
  const Outcome outcome = std::move(RunWorld({0})[0]);
  EXPECT_EQ(outcome.exit_code, train::kExitNoDevice);
  EXPECT_FALSE(outcome.control->joined);
  ASSERT_EQ(outcome.control->failures.size(), 1);
  const v1::FailureReport& failure = outcome.control->failures[0];
  EXPECT_FALSE(failure.not_retryable());
  EXPECT_EQ(failure.phase(), "opening-device");
  EXPECT_THAT(failure.message(), HasSubstr("node node-0: CUDA: no "));
  EXPECT_THAT(failure.message(), HasSubstr("/trainer/rank/libmuster-cuda.so"));
}

TEST_F(TrainJobTest, FailsPermanentlyWhenCheckpointDirectoryCannotBeCreated) {
  data::WriteFile(directory_.path() + "/node-0", "a file is in the way");
  const Outcome outcome = std::move(RunWorld({0})[0]);
  EXPECT_EQ(outcome.exit_code, train::kExitCannotCreate);
  ASSERT_EQ(outcome.control->failures.size(), 1);
  EXPECT_TRUE(outcome.control->failures[0].not_retryable());
  EXPECT_THAT(outcome.control->failures[0].message(), HasSubstr("/node-0/checkpoints"));
}

TEST_F(TrainJobTest, FailsPermanentlyForBadSpec) {
  spec().mutable_model()->set_name("vgg");
  const Outcome outcome = std::move(RunWorld({0})[0]);
  EXPECT_EQ(outcome.exit_code, train::kExitBadSpec);
  ASSERT_EQ(outcome.control->failures.size(), 1);
  EXPECT_TRUE(outcome.control->failures[0].not_retryable());
}

TEST_F(TrainJobTest, WritesFinalCheckpointByDefault) {
  spec().clear_checkpoint();
  spec::ApplyDefaults(*launch_.mutable_spec());
  const Outcome outcome = std::move(RunWorld({0})[0]);
  ASSERT_EQ(outcome.exit_code, 0);
  const std::string directory = directory_.path() + "/job-on-node";
  EXPECT_EQ(outcome.control->summaries[0].checkpoint(), directory + "/step-00000010.g1");
  EXPECT_TRUE(std::filesystem::exists(directory + "/step-00000010.g1/model.safetensors"));
  ASSERT_EQ(outcome.control->checkpoints.size(), 2);
  EXPECT_EQ(outcome.control->checkpoints[0].step(), 0);
  EXPECT_EQ(outcome.control->checkpoints[0].name(), "");
  EXPECT_EQ(outcome.control->checkpoints[1].step(), 10);
  EXPECT_EQ(outcome.control->checkpoints[1].name(), "step-00000010.g1");
  EXPECT_EQ(outcome.control->checkpoints[1].dir(), directory);
  EXPECT_FALSE(outcome.control->checkpoints[1].shared());
  EXPECT_EQ(outcome.control->checkpoints[1].node(), "node-0");
}

TEST_F(TrainJobTest, ReportsBestCheckpoint) {
  spec().set_evaluate_every_epochs(1);
  spec().mutable_checkpoint()->set_keep_best("test_loss");
  spec().mutable_checkpoint()->set_keep(1);
  const Outcome first = std::move(RunWorld({0})[0]);
  ASSERT_EQ(first.exit_code, 0);
  EXPECT_EQ(first.control->checkpoints.front().best_name(), "");
  EXPECT_EQ(first.control->checkpoints.back().step(), 10);
  EXPECT_EQ(first.control->checkpoints.back().best_name(), "step-00000010.g1");
  EXPECT_EQ(first.control->checkpoints.back().best_step(), 10);
  // Ascends, so that all later evaluations are worse.
  spec().set_max_steps(20);
  spec().mutable_optimizer()->set_learning_rate(-0.01);
  const Outcome second = std::move(RunWorld({0})[0]);
  ASSERT_EQ(second.exit_code, 0);
  EXPECT_EQ(second.control->checkpoints.front().best_name(), "step-00000010.g2");
  EXPECT_EQ(second.control->checkpoints.back().name(), "step-00000020.g2");
  EXPECT_EQ(second.control->checkpoints.back().best_name(), "step-00000010.g2");
  EXPECT_EQ(second.control->checkpoints.back().best_step(), 10);
}

TEST_F(TrainJobTest, PrefersDirectoryOfSpecToSharedOne) {
  launch_.set_checkpoint_dir(directory_.path() + "/job-on-node");
  const std::vector<Outcome> own = RunWorld({0});
  EXPECT_EQ(own[0].control->checkpoints[0].dir(), directory_.path() + "/node-0/checkpoints");
  EXPECT_FALSE(own[0].control->checkpoints[0].shared());
  spec().mutable_checkpoint()->clear_dir();
  const std::vector<Outcome> shared = RunWorld({0});
  EXPECT_EQ(shared[0].control->checkpoints[0].dir(), launch_.checkpoint_dir());
  EXPECT_TRUE(shared[0].control->checkpoints[0].shared());
  EXPECT_TRUE(shared[0].control->checkpoints[0].node().empty());
}

TEST_F(TrainJobTest, WritesNoCheckpointIfNoneAreKept) {
  spec().mutable_checkpoint()->set_keep(0);
  const std::vector<Outcome> outcomes = RunWorld({0, 1});
  ASSERT_EQ(outcomes[0].exit_code, 0);
  EXPECT_TRUE(outcomes[0].control->checkpoints.empty());
  EXPECT_TRUE(outcomes[0].control->summaries[0].checkpoint().empty());
  EXPECT_FALSE(std::filesystem::exists(directory_.path() + "/node-0"));
}

TEST_F(TrainJobTest, ContinuesAnotherJobOnlyIfNamed) {
  ASSERT_EQ(RunWorld({0})[0].exit_code, 0);
  launch_.set_job_id("next");
  const std::string directory = directory_.path() + "/node-0/checkpoints";
  const Outcome refused = std::move(RunWorld({0})[0]);
  EXPECT_EQ(refused.exit_code, train::kExitCannotCreate);
  EXPECT_FALSE(refused.control->joined);
  ASSERT_EQ(refused.control->failures.size(), 1);
  EXPECT_TRUE(refused.control->failures[0].not_retryable());
  EXPECT_EQ(refused.control->failures[0].message(),
            "node node-0: checkpoint directory " + directory +
                " holds step 10 of job job, and this is job next; set checkpoint.resume_from: " +
                directory + " to continue from it, or choose another dir");

  spec().mutable_checkpoint()->set_resume_from(directory_.path() + "/{node}/checkpoints");
  spec().mutable_checkpoint()->set_dir(directory_.path() + "/next");
  spec().set_max_steps(15);
  const Outcome continued = std::move(RunWorld({0})[0]);
  ASSERT_EQ(continued.exit_code, 0);
  EXPECT_EQ(continued.control->join_info.checkpoint_path(), directory + "/step-00000010.g1");
  EXPECT_EQ(continued.control->join_info.checkpoint_job_id(), "job");
  EXPECT_EQ(continued.control->join_info.checkpoint_generation(), 0);
  EXPECT_EQ(continued.control->summaries[0].resumed_from_step(), 10);
  EXPECT_EQ(continued.control->summaries[0].checkpoint(),
            directory_.path() + "/next/step-00000015.g3");

  // Its next generation finds its own checkpoint.
  const Outcome complete = std::move(RunWorld({0})[0]);
  EXPECT_EQ(complete.control->join_info.checkpoint_job_id(), "next");
  EXPECT_EQ(complete.control->checkpoints[0].step(), 15);
  EXPECT_EQ(complete.control->checkpoints[0].name(), "step-00000015.g4");
  EXPECT_EQ(complete.control->summaries[0].first_loss_step(), 11) << "the job began there";
  EXPECT_FALSE(complete.control->summaries[0].already_complete());
}

TEST_F(TrainJobTest, FailsPermanentlyWithoutCheckpointToContinueFrom) {
  spec().mutable_checkpoint()->set_resume_from(directory_.path() + "/empty");
  for (const Outcome& outcome : RunWorld({0, 1})) {
    EXPECT_EQ(outcome.exit_code, train::kExitNoInput);
    ASSERT_EQ(outcome.control->failures.size(), 1);
    EXPECT_TRUE(outcome.control->failures[0].not_retryable());
    EXPECT_THAT(outcome.control->failures[0].message(),
                HasSubstr("train.checkpoint.resume_from: no rank found a valid checkpoint in " +
                          directory_.path() + "/empty"));
  }
}

TEST_F(TrainJobTest, RejectsCheckpointsOfAnotherTraining) {
  ASSERT_EQ(RunWorld({0})[0].exit_code, 0);
  spec().set_seed(77);
  const Outcome outcome = std::move(RunWorld({0})[0]);
  EXPECT_EQ(outcome.exit_code, train::kExitCannotCreate);
  EXPECT_THAT(outcome.control->failures[0].message(), HasSubstr("another training"));
}

TEST_F(TrainJobTest, ReportsLostPeerAsConsequence) {
  connect_error_ = absl::UnavailableError("rank 3 closed its connection");
  connect_error_.SetPayload(collectives::kPeerRankPayload, absl::Cord("3"));
  const Outcome outcome = std::move(RunWorld({0})[0]);
  EXPECT_EQ(outcome.exit_code, train::kExitFailure);
  ASSERT_EQ(outcome.control->failures.size(), 1);
  EXPECT_EQ(outcome.control->failures[0].peer_rank(), 3);
  EXPECT_TRUE(outcome.control->failures[0].has_peer_rank());
  EXPECT_FALSE(outcome.control->failures[0].not_retryable());
  EXPECT_EQ(outcome.control->failures[0].phase(), "connecting");
}

TEST_F(TrainJobTest, EndsWithoutReportWhenAborted) {
  spec().set_max_steps(1'000'000);
  at_progress_ = [this](const v1::Progress& progress) {
    if (progress.step() > 0) abort_.Abort(absl::AbortedError("NodeLost: node-7 is gone"));
  };
  for (const Outcome& outcome : RunWorld({0, 1})) {
    EXPECT_EQ(outcome.exit_code, train::kExitFailure);
  }
}

TEST_F(TrainJobTest, EndsBySignalAfterItHasSavedItsState) {
  spec().set_max_steps(1'000'000);
  at_progress_ = [this](const v1::Progress& progress) {
    if (progress.step() == 5) requests_.RequestStop(SIGUSR1);
  };
  const Outcome outcome = std::move(RunWorld({0})[0]);
  EXPECT_EQ(outcome.stopped_by, SIGUSR1);
  EXPECT_TRUE(outcome.control->failures.empty());
  EXPECT_TRUE(outcome.control->summaries.empty());
  EXPECT_EQ(outcome.control->checkpoints.back().step(), 5);
}

// The signal ends the rank in any case once it has accepted it.
TEST_F(TrainJobTest, EndsBySignalIfItFailsMeanwhile) {
  spec().set_max_steps(1'000'000);
  at_progress_ = [this](const v1::Progress& progress) {
    if (progress.step() == 0) return;
    requests_.RequestStop(SIGTERM);
    abort_.Abort(absl::AbortedError("NodeLost: node-7 is gone"));
  };
  for (const Outcome& outcome : RunWorld({0, 1})) EXPECT_EQ(outcome.stopped_by, SIGTERM);
}

TEST_F(TrainJobTest, ReportsCheckpointsThatCannotBeWritten) {
  const std::string directory = directory_.path() + "/node-0/checkpoints";
  at_progress_ = [&](const v1::Progress& progress) {
    if (progress.step() == 5 && std::filesystem::exists(directory)) {
      std::filesystem::rename(directory, directory + "-aside");
    }
  };
  const Outcome outcome = std::move(RunWorld({0})[0]);
  // The only checkpoint is the final one.
  EXPECT_EQ(outcome.exit_code, train::kExitCannotCreate);
  EXPECT_EQ(outcome.stopped_by, 0);
  ASSERT_EQ(outcome.control->failures.size(), 1);
  EXPECT_TRUE(outcome.control->failures[0].not_retryable());
  EXPECT_THAT(
      outcome.control->failures[0].message(),
      ::testing::StartsWith("node node-0 could not write the final checkpoint of step 10 to " +
                            directory + ": "));
  const v1::CheckpointStatus& status = outcome.control->checkpoints.back();
  EXPECT_EQ(status.failures(), 1);
  EXPECT_EQ(status.failed_step(), 10);
  EXPECT_THAT(status.failure(), HasSubstr(directory));
  EXPECT_EQ(status.step(), 0);
}

TEST_F(TrainJobTest, KeepsAbortIssuedBeforeConnecting) {
  abort_.Abort(absl::AbortedError("RankFailed: rank 1 is gone"));
  const Outcome outcome = std::move(RunWorld({0})[0]);
  EXPECT_EQ(outcome.exit_code, train::kExitFailure);
  EXPECT_TRUE(outcome.control->failures.empty());
}

class ReadLaunchTest : public ::testing::Test {
 protected:
  ~ReadLaunchTest() override { unsetenv("MUSTER_LAUNCH_FILE"); }
  absl::Status Read(const std::string& bytes) {
    const std::string path = directory_.path() + "/launch";
    data::WriteFile(path, bytes);
    setenv("MUSTER_LAUNCH_FILE", path.c_str(), 1);
    return ReadLaunch().status();
  }
  data::TemporaryDirectory directory_;
};

TEST_F(ReadLaunchTest, AcceptsOnlyTrainJobs) {
  v1::Launch launch;
  launch.mutable_spec()->mutable_train()->set_seed(1);
  EXPECT_TRUE(Read(launch.SerializeAsString()).ok());
  launch.mutable_spec()->clear_train();
  EXPECT_FALSE(Read(launch.SerializeAsString()).ok());
  EXPECT_EQ(Read("\xff\xff\xff").code(), absl::StatusCode::kDataLoss);
  unsetenv("MUSTER_LAUNCH_FILE");
  EXPECT_EQ(ReadLaunch().status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace muster::rank
