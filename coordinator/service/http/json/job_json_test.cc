#include "coordinator/service/http/json/job_json.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::service {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

v1::Job MakeJob() {
  v1::Job job;
  job.set_job_id("job-abcde");
  job.set_state(v1::RUNNING);
  job.mutable_spec()->set_name("job");
  job.mutable_spec()->set_output("joined");
  job.mutable_spec()->add_command("--password=sesame");
  (*job.mutable_spec()->mutable_env())["KEY"] = "sesame";
  job.set_reason("Running");
  job.set_message("line\n\"quoted\" <script>\x01 ü");
  job.mutable_progress()->set_step(50);
  job.mutable_progress()->set_total_steps(200);
  job.mutable_progress()->set_loss(std::nan(""));
  v1::FirstFailure& failure = *job.mutable_first_failure();
  failure.set_rank(0);
  failure.set_reason("RankFailed");
  failure.mutable_exit()->set_stderr_tail("sesame");
  return job;
}

v1::RankStatus& AddRank(v1::Job& job, v1::RankPhase phase, double slowdown = 0) {
  v1::RankStatus& rank = *job.add_ranks();
  rank.set_rank(job.ranks_size() - 1);
  rank.set_phase(phase);
  rank.set_slowdown(slowdown);
  return rank;
}

TEST(JobJson, IsValidWhateverTheTextsAre) {
  const json row = json::parse(JobRowJson(MakeJob()));
  EXPECT_EQ(row["note"], MakeJob().message());
  EXPECT_EQ(row["state"], "running");
  EXPECT_EQ(row["step"], 50);
  EXPECT_TRUE(row["loss"].is_null()) << "not a number";
  const json details = json::parse(JobJson(MakeJob()));
  EXPECT_EQ(details["failure"]["rank"], 0);
  EXPECT_EQ(details["message"], MakeJob().message());
  EXPECT_EQ(details["output"], "joined");
}

TEST(JobJson, RowsHaveNoPrivateParts) {
  v1::Job job = MakeJob();
  job.set_reason("RankFailed");
  job.set_message("rank 0 on node-1 exited with code 1: sesame");
  job.mutable_first_failure()->set_node("node-1");
  job.mutable_first_failure()->mutable_exit()->set_exit_code(1);
  job.mutable_progress()->set_phase("sesame");
  EXPECT_THAT(JobRowJson(job), Not(HasSubstr("sesame")));
  EXPECT_EQ(json::parse(JobRowJson(job))["note"], "rank 0 on node-1 exited with code 1");
}

TEST(JobJson, LongNotesAreCutAtACharacter) {
  v1::Job job = MakeJob();
  std::string message = "x";
  for (int i = 0; i < 500; ++i) message += "ü";
  job.set_message(message);
  const std::string note = json::parse(JobRowJson(job))["note"];
  EXPECT_LT(note.size(), 210u);
  EXPECT_THAT(note, HasSubstr("ü…"));
}

TEST(RanksJson, MarksTheSlowest) {
  v1::Job job = MakeJob();
  AddRank(job, v1::CONNECTED, 1.0);
  AddRank(job, v1::CONNECTED, 1.4);
  AddRank(job, v1::CONNECTED, 1.1);
  const json ranks = json::parse(RanksJson(job));
  EXPECT_EQ(ranks["slowest"], 1);
  EXPECT_EQ(ranks["total"], 3);
  EXPECT_EQ(ranks["ranks"].size(), 3u);
}

TEST(RanksJson, OfManyRanksThoseWithProblemsAreShown) {
  v1::Job job = MakeJob();
  for (int i = 0; i < 1000; ++i) AddRank(job, v1::CONNECTED);
  AddRank(job, v1::STARTED);
  AddRank(job, v1::EXITED).mutable_exit()->set_exit_code(3);
  const json ranks = json::parse(RanksJson(job));
  EXPECT_EQ(ranks["total"], 1002);
  ASSERT_EQ(ranks["ranks"].size(), 256u);
  EXPECT_EQ(ranks["ranks"][0]["exit"], "code 3");
  EXPECT_EQ(ranks["ranks"][1]["rank"], 1000);
}

TEST(CurvePointJson, LeavesOutWhatWasNotReported) {
  v1::CurvePoint point;
  point.set_step(7);
  point.set_seconds(1.5);
  point.set_loss(0.25);
  EXPECT_EQ(CurvePointJson(point), "[7,1.5,0.25,null,null,null]");
  point.set_loss(std::nan(""));
  EXPECT_EQ(CurvePointJson(point), "[7,1.5,null,null,null,null]");
}

}  // namespace
}  // namespace muster::service
