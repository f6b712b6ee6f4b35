#include "cli/experiment/runner.h"

#include <filesystem>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/experiment/cells.h"
#include "cli/experiment/experiment.h"
#include "cli/experiment/results.h"
#include "cli/fake_cluster.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr char kFile[] = R"(
experiment: {name: trial, repeat: 2}
base: {command: [/bin/true]}
grid:
  rate: {field: env.RATE, values: [1, 2]}
)";

class RunnerTest : public ::testing::Test {
 protected:
  RunnerTest() {
    directory_ = ::testing::TempDir() + "/runner-" +
                 ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(directory_);
    cluster_.on_submit = [this](const v1::SubmitJobRequest& request,
                                v1::SubmitJobResponse* response) {
      if (!refusal_.empty()) {
        return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, refusal_);
      }
      const std::string id = absl::StrCat("trial-", requests_.size());
      requests_.push_back(request);
      for (int i = 0; i < request.spec().array().tasks_size(); ++i) {
        v1::Job& job = jobs_[absl::StrCat(id, "-", i)];
        job.set_job_id(absl::StrCat(id, "-", i));
        job.set_array_id(id);
        job.set_state(v1::SUCCEEDED);
      }
      response->mutable_array()->set_array_id(id);
      return grpc::Status::OK;
    };
    cluster_.on_get = [this](const v1::GetJobRequest& request, v1::Job* job) {
      const auto found = jobs_.find(request.job_id());
      if (found == jobs_.end()) return grpc::Status(grpc::StatusCode::NOT_FOUND, "no job");
      *job = found->second;
      return grpc::Status::OK;
    };
    cluster_.on_watch = [this](const v1::WatchJobRequest& request, grpc::ServerContext&,
                               FakeCluster::Writer<v1::Job> write) {
      write(jobs_.at(request.job_id()));
      return grpc::Status::OK;
    };
    cluster_.Start();
  }

  // Runs the experiment in the same directory, as a new process would; returns the exit code.
  int Run(const std::string& text, const RunnerOptions& options = {}) {
    const Experiment experiment = ParseExperiment(text, "trial.yaml", {}).value();
    const std::vector<Cell> cells = MakeCells(experiment).value();
    RunStore store = RunStore::Open(directory_, experiment.name).value();
    Console console(out_, err_, {});
    Context context(console);
    ClusterClient::Options client_options;
    client_options.address = cluster_.address();
    ClusterClient client(client_options);
    Stopper stopper;
    return RunCells(context, client, experiment, cells, options, store, stopper);
  }

  // Replaces the stored job of a run of the first cell, as if a process had been killed then.
  void SetJob(const std::string& text, uint32_t repetition, const v1::Job& job) {
    const Experiment experiment = ParseExperiment(text, "trial.yaml", {}).value();
    const std::vector<Cell> cells = MakeCells(experiment).value();
    RunStore store = RunStore::Open(directory_, experiment.name).value();
    JobRun run = *store.Find(cells[0].digest, repetition);
    run.job = job;
    store.Put(run);
    ASSERT_TRUE(WriteResults(experiment, Collect(experiment, cells, &store), store).ok());
  }

  std::vector<std::string> Rates(const v1::SubmitJobRequest& request) {
    std::vector<std::string> rates;
    for (const v1::ArrayTaskValues& task : request.spec().array().tasks()) {
      for (const v1::ArrayValue& value : task.values()) rates.push_back(value.value());
    }
    return rates;
  }

  std::string directory_;
  FakeCluster cluster_;
  std::string refusal_;
  std::vector<v1::SubmitJobRequest> requests_;
  std::map<std::string, v1::Job> jobs_;
  std::ostringstream out_, err_;
};

TEST_F(RunnerTest, SubmitsAllRunsAsOneArray) {
  EXPECT_EQ(Run(kFile, {.parallel = 3}), 0) << err_.str();
  ASSERT_THAT(requests_, SizeIs(1));
  EXPECT_EQ(requests_[0].spec().name(), "trial");
  EXPECT_EQ(requests_[0].spec().array().concurrency(), 3u);
  EXPECT_FALSE(requests_[0].spec().has_after());
  EXPECT_THAT(Rates(requests_[0]), ElementsAre("1", "2", "1", "2"));
  EXPECT_THAT(err_.str(), HasSubstr("[4/4] rate=2 run 2: succeeded"));
  // Nothing is left to do.
  EXPECT_EQ(Run(kFile), 0);
  EXPECT_THAT(requests_, SizeIs(1));
}

TEST_F(RunnerTest, CellsThatShareNoSpecWaitForTheArrayBefore) {
  const std::string text =
      "experiment: {name: trial}\nbase: {command: [/bin/true]}\ngrid:\n"
      "  job:\n    - {label: a, set: {after.ok: [x]}}\n    - {label: b, set: {after.ok: [y]}}\n"
      "  rate: {field: env.RATE, values: [1, 2]}\n";
  EXPECT_EQ(Run(text), 0) << err_.str();
  ASSERT_THAT(requests_, SizeIs(2));
  EXPECT_THAT(requests_[0].spec().after().ok(), ElementsAre("x"));
  EXPECT_THAT(requests_[0].spec().after().any(), IsEmpty());
  EXPECT_THAT(Rates(requests_[1]), ElementsAre("1", "2"));
  EXPECT_THAT(requests_[1].spec().after().ok(), ElementsAre("y"));
  EXPECT_THAT(requests_[1].spec().after().any(), ElementsAre("trial-0"));
}

TEST_F(RunnerTest, TakesOverJobsOfAnEarlierCall) {
  EXPECT_EQ(Run(kFile), 0) << err_.str();
  // It was killed before it had seen the end of two jobs; one of them was cancelled.
  v1::Job job;
  job.set_job_id("trial-0-0");
  job.set_state(v1::QUEUED);
  SetJob(kFile, 0, job);
  job.set_job_id("trial-0-2");
  SetJob(kFile, 1, job);
  jobs_["trial-0-2"].set_state(v1::CANCELLED);
  EXPECT_EQ(Run(kFile), 0) << err_.str();
  EXPECT_THAT(err_.str(), HasSubstr("2 jobs to run; 2 already succeeded"));
  ASSERT_THAT(requests_, SizeIs(2));
  EXPECT_THAT(Rates(requests_[1]), ElementsAre("1"));
  EXPECT_NE(requests_[1].idempotency_key(), requests_[0].idempotency_key());
}

TEST_F(RunnerTest, RepeatsARequestWhoseAnswerWasLost) {
  EXPECT_EQ(Run(kFile), 0) << err_.str();
  SetJob(kFile, 0, v1::Job());
  SetJob(kFile, 1, v1::Job());
  EXPECT_EQ(Run(kFile), 0) << err_.str();
  SetJob(kFile, 0, v1::Job());
  SetJob(kFile, 1, v1::Job());
  EXPECT_EQ(Run(kFile), 0) << err_.str();
  ASSERT_THAT(requests_, SizeIs(3));
  EXPECT_EQ(requests_[1].idempotency_key(), requests_[2].idempotency_key());
  EXPECT_EQ(requests_[1].spec().SerializeAsString(), requests_[2].spec().SerializeAsString());
}

TEST_F(RunnerTest, RerunUsesNewJobs) {
  EXPECT_EQ(Run(kFile), 0);
  EXPECT_EQ(Run(kFile, {.rerun = true}), 0);
  ASSERT_THAT(requests_, SizeIs(2));
  EXPECT_NE(requests_[0].idempotency_key(), requests_[1].idempotency_key());
}

TEST_F(RunnerTest, RecordsJobsThatTheCoordinatorRejects) {
  refusal_ = "the reason";
  EXPECT_EQ(Run(kFile), 1);
  EXPECT_THAT(err_.str(), HasSubstr("[1/4] rate=1 run 1: failed: Refused: the reason"));
  refusal_.clear();
  EXPECT_EQ(Run(kFile), 0) << err_.str();
}

}  // namespace
}  // namespace muster::cli
