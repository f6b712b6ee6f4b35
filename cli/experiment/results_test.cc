#include "cli/experiment/results.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>

#include "absl/strings/str_cat.h"
#include "cli/experiment/metrics.h"
#include "cli/experiment/tables.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace muster::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kFile[] = R"(
experiment: {name: trial, repeat: 2}
base:
  train:
    model: {name: mlp}
    dataset: {name: fashion_mnist, path: /data}
    max_steps: 40
    global_batch: 64
    optimizer: {name: sgd, learning_rate: 0.1}
grid:
  ranks: {field: resources.ranks_per_node, values: [1, 2]}
  precision: {field: train.precision, values: [O0, O1, O2]}
skip: [{when: {ranks: 2, precision: O1}, reason: "no, time"}]
baseline: {precision: O0}
found: Nothing | at all.
)";

TEST(MeasurementsTest, MeasuresTwentyConsecutiveSteps) {
  v1::Job job;
  v1::TrainSummary& summary = *job.mutable_summary();
  summary.set_median_step_seconds(0.25);
  EXPECT_DOUBLE_EQ(MeasurementsOf(job).at("seconds_per_20_steps"), 5);
  // A slow start, then three groups of 20 steps, one of which has a pause; the rest is not a full
  // group.
  double end = 0;
  for (int step = 0; step < 85; ++step) {
    end += step < 20 ? 10 : 0.5;
    if (step == 45) end += 100;
    summary.add_step_end_seconds(static_cast<float>(end));
  }
  EXPECT_DOUBLE_EQ(MeasurementsOf(job).at("seconds_per_20_steps"), 10);
}

TEST(MetricsTest, MeasuresWhatACommandReports) {
  v1::Job job;
  job.mutable_spec()->add_command("train");
  job.mutable_progress()->set_step(24);
  job.mutable_progress()->set_loss(0.25);
  const Measurements values = MeasurementsOf(Kept(job));
  EXPECT_EQ(values.at("steps"), 24);
  EXPECT_EQ(values.at("final_loss"), 0.25);
  EXPECT_EQ(values.count("test_accuracy"), 0u);
}

TEST(MetricsTest, TimeToTheFirstStepDoesNotIncludeTheQueue) {
  v1::Job job;
  job.mutable_submit_time()->set_seconds(100);
  job.mutable_start_time()->set_seconds(400);
  job.mutable_summary()->mutable_first_step_time()->set_seconds(402);
  job.mutable_summary()->set_seconds_to_first_step(302);
  EXPECT_EQ(MeasurementsOf(Kept(job)).at("seconds_to_first_step"), 2);
}

class ResultsTest : public ::testing::Test {
 protected:
  ResultsTest() {
    std::string path = absl::StrCat(::testing::TempDir(), "/results.XXXXXX");
    directory_ = mkdtemp(path.data());
    experiment_ = *ParseExperiment(kFile, "trial.yaml", {});
    cells_ = *MakeCells(experiment_);
  }
  ~ResultsTest() override { std::filesystem::remove_all(directory_); }

  RunStore Open() {
    absl::StatusOr<RunStore> store = RunStore::Open(directory_, "trial");
    EXPECT_TRUE(store.ok()) << store.status();
    return *std::move(store);
  }

  JobRun MakeRun(size_t cell, uint32_t repetition, double images_per_second) const {
    JobRun run;
    run.digest = cells_[cell].digest;
    run.repetition = repetition;
    run.cell = cells_[cell].name;
    run.job.set_job_id(absl::StrCat("trial-", cell, "-", repetition));
    run.job.set_state(v1::SUCCEEDED);
    run.job.mutable_start_time()->set_seconds(1000);
    run.job.mutable_finish_time()->set_seconds(1012);
    run.job.mutable_summary()->set_images_per_second(images_per_second);
    run.job.mutable_summary()->set_median_step_seconds(64 / images_per_second);
    return run;
  }

  std::string directory_;
  Experiment experiment_;
  std::vector<Cell> cells_;
};

TEST_F(ResultsTest, LoadsSavedRuns) {
  std::string key;
  {
    RunStore store = Open();
    EXPECT_EQ(store.Find(cells_[0].digest, 0), nullptr);
    store.Put(MakeRun(0, 0, 100));
    JobRun run = MakeRun(0, 1, 110);
    run.attempt = 3;
    run.job.mutable_summary()->set_final_loss(std::numeric_limits<double>::quiet_NaN());
    run.job.mutable_summary()->add_devices()->set_parameter_bytes(uint64_t{1} << 40);
    store.Put(run);
    key = store.IdempotencyKey("request");
    ASSERT_TRUE(store.Save(ResultDocument(experiment_, Collect(experiment_, cells_, &store))).ok());
  }
  RunStore store = Open();
  const JobRun* run = store.Find(cells_[0].digest, 1);
  ASSERT_NE(run, nullptr);
  EXPECT_EQ(run->attempt, 3u);
  EXPECT_EQ(run->cell, "ranks=1 precision=O0");
  EXPECT_EQ(run->job.job_id(), "trial-0-1");
  EXPECT_EQ(run->job.state(), v1::SUCCEEDED);
  EXPECT_EQ(run->job.summary().images_per_second(), 110);
  EXPECT_EQ(run->job.summary().devices(0).parameter_bytes(), uint64_t{1} << 40);
  EXPECT_EQ(store.IdempotencyKey("request"), key);
  EXPECT_LE(key.size(), 128u);
  EXPECT_NE(store.IdempotencyKey("another request"), key);
}

TEST_F(ResultsTest, PutReplacesARun) {
  RunStore store = Open();
  store.Put(MakeRun(0, 0, 100));
  store.Put(MakeRun(0, 0, 200));
  EXPECT_EQ(store.Find(cells_[0].digest, 0)->job.summary().images_per_second(), 200);
  EXPECT_EQ(store.Find(cells_[1].digest, 0), nullptr);
}

TEST_F(ResultsTest, DirectoryBelongsToOneExperimentAndOneProcess) {
  {
    RunStore store = Open();
    const absl::Status second = RunStore::Open(directory_, "trial").status();
    EXPECT_EQ(second.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(second.message()), HasSubstr("another muster experiment"));
    ASSERT_TRUE(store.Save(ResultDocument(experiment_, {})).ok());
  }
  EXPECT_THAT(std::string(RunStore::Open(directory_, "other").status().message()),
              HasSubstr("contains results of the experiment trial"));
  std::ofstream(directory_ + "/results.json") << "{\"experiment\": \"trial\"";
  EXPECT_THAT(std::string(RunStore::Open(directory_, "trial").status().message()),
              HasSubstr("was not written by this program"));
}

// A directory cannot be replaced by a file: it stays, and no temporary file is left.
TEST_F(ResultsTest, FailedWriteLeavesNoFile) {
  RunStore store = Open();
  std::filesystem::create_directories(directory_ + "/results.md/x");
  EXPECT_FALSE(store.SaveFile("results.md", "text").ok());
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory_), {}), 1);
}

TEST_F(ResultsTest, CollectComputesMediansAndComparisons) {
  RunStore store = Open();
  store.Put(MakeRun(0, 0, 100));  // ranks=1 O0
  store.Put(MakeRun(0, 1, 120));
  store.Put(MakeRun(2, 0, 220));  // ranks=1 O2; its second run is missing
  store.Put(MakeRun(3, 0, 190));  // ranks=2 O0
  store.Put(MakeRun(3, 1, 200));
  JobRun failed = MakeRun(5, 0, 1);  // ranks=2 O2
  failed.job.set_state(v1::FAILED);
  failed.job.set_reason("RankFailed");
  failed.job.set_message("rank 1 exited with code 7");
  store.Put(failed);

  const std::vector<CellResult> results = Collect(experiment_, cells_, &store);
  EXPECT_EQ(results[0].state, CellState::kSucceeded);
  EXPECT_EQ(results[1].state, CellState::kPending);
  EXPECT_EQ(results[2].state, CellState::kPending);
  EXPECT_EQ(results[4].state, CellState::kSkipped);
  EXPECT_EQ(results[5].state, CellState::kFailed);
  EXPECT_EQ(results[5].reason, "RankFailed: rank 1 exited with code 7");
  EXPECT_TRUE(results[5].medians.empty());

  EXPECT_EQ(results[0].medians.at("images_per_second"), 110);
  EXPECT_EQ(results[0].medians.at("job_seconds"), 12);
  EXPECT_EQ(results[0].medians.at(kSpeedup), 1);
  EXPECT_EQ(results[2].medians.at(kSpeedup), 2);
  EXPECT_EQ(results[0].medians.at(kScalingEfficiency), 1);
  EXPECT_DOUBLE_EQ(results[3].medians.at(kScalingEfficiency), 195.0 / (2 * 110));
  EXPECT_EQ(results[3].medians.at(kSpeedup), 1);
}

TEST_F(ResultsTest, Tables) {
  RunStore store = Open();
  for (const size_t cell : {0, 3}) {
    for (uint32_t i = 0; i < 2; ++i) store.Put(MakeRun(cell, i, 100 + 100 * cell));
  }
  const std::vector<CellResult> results = Collect(experiment_, cells_, &store);
  const std::string table = ResultTable(experiment_, results);
  EXPECT_THAT(table,
              ::testing::MatchesRegex("RANKS +PRECISION +STATE +RUNS +DEVICES +IMAGES/S +[^\n]*\n"
                                      "1 +O0 +succeeded +2 +1 +100 [^\n]*\n(.*\n)*"));
  EXPECT_THAT(table, HasSubstr("\nranks=2 precision=O1: left out: no, time\n"));
  EXPECT_THAT(table, Not(HasSubstr("ACCURACY")));

  const std::string csv = ResultCsv(experiment_, results);
  EXPECT_THAT(csv, HasSubstr("ranks,precision,state,runs,devices,images_per_second,"));
  EXPECT_THAT(csv, HasSubstr("\n2,O0,succeeded,2,2,400,0.16,"));
  EXPECT_THAT(csv, HasSubstr(",\"no, time\"\n"));

  const std::string markdown = ResultMarkdown(experiment_, results);
  EXPECT_THAT(markdown, HasSubstr("# trial\n\nFor users and contributors: "));
  EXPECT_THAT(markdown, HasSubstr("\n\n| ranks | precision | state |"));
  EXPECT_THAT(markdown, HasSubstr("## Published results\n\nNothing | at all.\n"));

  const nlohmann::ordered_json document = ResultDocument(experiment_, results);
  EXPECT_EQ(document["cells"][3]["labels"]["ranks"], "2");
  EXPECT_EQ(document["cells"][3]["metrics"]["images_per_second"], 400);
  EXPECT_EQ(document["cells"][4]["state"], "left out");
}

TEST_F(ResultsTest, MarkdownHasDetails) {
  RunStore store = Open();
  JobRun run = MakeRun(0, 0, 100);
  v1::TrainSummary& summary = *run.job.mutable_summary();
  for (const char* name : {"scatter", "forward"}) {
    v1::StepPart& part = *summary.add_parts();
    part.set_name(name);
    part.set_seconds(0.25);
  }
  v1::DeviceUse& device = *summary.add_devices();
  device.set_node("node|1");
  device.set_gathered_bytes(3 << 20);
  v1::StageUse& stage = *summary.add_stages();
  stage.set_first_layer("conv1");
  stage.set_last_layer("fc");
  store.Put(run);
  const std::string markdown = ResultMarkdown(experiment_, Collect(experiment_, cells_, &store));
  EXPECT_THAT(markdown, HasSubstr("| cell | scatter | forward | step |\n|---|---|---|---|\n"
                                  "| ranks=1 precision=O0 | 0.25 s | 0.25 s | 0.64 s |\n"));
  EXPECT_THAT(markdown, HasSubstr("| node\\|1 |"));
  EXPECT_THAT(markdown, HasSubstr("| 3.0 MiB |"));
  EXPECT_THAT(markdown, HasSubstr("| conv1 to fc |"));
}

TEST(Metrics, FormatsValues) {
  EXPECT_EQ(MetricText(Unit::kPerSecond, 12345.6), "12,346");
  EXPECT_EQ(MetricText(Unit::kSeconds, 0.012345), "0.01235 s");
  EXPECT_EQ(MetricText(Unit::kRatio, 0.875), "87.5 %");
}

}  // namespace
}  // namespace muster::cli
