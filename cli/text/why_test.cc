#include "cli/text/why.h"

#include "absl/strings/str_cat.h"
#include "common/time/proto_time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace muster::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

const absl::Time kNow = absl::FromUnixSeconds(1'800'000'000);

v1::Job JobIn(v1::JobState state) {
  v1::Job job;
  job.set_job_id("train-x7k2");
  job.set_state(state);
  job.set_generation(1);
  *job.mutable_submit_time() = ToProto(kNow - absl::Seconds(90));
  *job.mutable_start_time() = ToProto(kNow - absl::Seconds(80));
  return job;
}

v1::RankStatus& AddRank(v1::Job& job, uint64_t collectives, uint64_t step, double silent_seconds) {
  v1::RankStatus& rank = *job.add_ranks();
  rank.set_rank(job.ranks_size() - 1);
  rank.set_node("node-1");
  rank.set_pid(4000 + rank.rank());
  rank.set_phase(v1::CONNECTED);
  rank.mutable_progress()->set_collective_sequence(collectives);
  rank.mutable_progress()->set_step(step);
  *rank.mutable_last_seen() = ToProto(absl::Seconds(silent_seconds));
  return rank;
}

TEST(SlowestTest, ComparesCollectivesThenStepsThenSilence) {
  v1::Job job = JobIn(v1::RUNNING);
  EXPECT_FALSE(FindSlowest(job).has_value());
  AddRank(job, 12, 5, 0.1);
  EXPECT_FALSE(FindSlowest(job).has_value());  // no other rank to compare it with
  AddRank(job, 12, 5, 0.7);
  EXPECT_EQ(FindSlowest(job)->rank->rank(), 1u);
  EXPECT_EQ(FindSlowest(job)->by, SlowestRank::By::kSilence);
  AddRank(job, 12, 4, 0.0);
  EXPECT_EQ(FindSlowest(job)->rank->rank(), 2u);
  EXPECT_EQ(FindSlowest(job)->by, SlowestRank::By::kStep);
  EXPECT_EQ(FindSlowest(job)->step, 5u);
  AddRank(job, 11, 9, 0.0);
  EXPECT_EQ(FindSlowest(job)->rank->rank(), 3u);
  EXPECT_EQ(FindSlowest(job)->by, SlowestRank::By::kCollectives);
  EXPECT_EQ(FindSlowest(job)->collectives, 12u);
  // A rank that has exited is not considered.
  AddRank(job, 0, 0, 60).set_phase(v1::EXITED);
  EXPECT_EQ(FindSlowest(job)->rank->rank(), 3u);
}

TEST(SlowestTest, DoesNotCompareRanksThatReportNoProgressWithOthers) {
  v1::Job job = JobIn(v1::RUNNING);
  AddRank(job, 0, 800, 0.1);
  AddRank(job, 0, 0, 2).clear_progress();
  EXPECT_FALSE(FindSlowest(job).has_value());
  job.mutable_ranks(0)->clear_progress();
  EXPECT_EQ(FindSlowest(job)->rank->rank(), 1u) << "none reports progress";
}

TEST(WhyTest, ExplainsQueuedJob) {
  WhyFacts facts;
  facts.job = JobIn(v1::QUEUED);
  facts.job.set_queue_position(2);
  facts.ahead.push_back(v1::Job());
  facts.ahead[0].set_job_id("first-1");
  facts.ahead[0].mutable_spec()->set_priority(5);
  v1::Wait& wait = *facts.job.add_waits();
  wait.set_what("resources");
  v1::WaitedFor& node = *wait.add_missing();
  node.set_node("node-1");
  node.set_reason("0 of 1 slots free");
  std::string text = WhyText(facts, kNow);
  EXPECT_THAT(text, HasSubstr("train-x7k2 is queued, position 2; submitted 1m30s ago.\n"));
  EXPECT_THAT(text, HasSubstr("Ahead of it: first-1 (priority 5).\n"));
  EXPECT_THAT(text, HasSubstr("It cannot start yet:\n  node-1: 0 of 1 slots free\n"));
  EXPECT_THAT(text, HasSubstr("No start time can be estimated"));
  *facts.job.mutable_estimated_start_time() = ToProto(kNow + absl::Minutes(4));
  text = WhyText(facts, kNow);
  EXPECT_THAT(text, HasSubstr("It should start within 4m, at "));
  const nlohmann::ordered_json json = WhyJson(facts, kNow);
  EXPECT_EQ(json["queue_position"], 2);
  EXPECT_EQ(json["ahead"][0], "first-1");
  EXPECT_EQ(json["waits"][0]["missing"][0]["node"], "node-1");
  EXPECT_EQ(json["answer"], text);
}

TEST(WhyTest, NamesEveryBlockerWithItsRemedy) {
  WhyFacts facts;
  facts.job = JobIn(v1::QUEUED);
  facts.job.set_queue_position(1);
  facts.job.set_array_id("sweep-9qd3a");
  facts.job.set_array_index(4);
  facts.job.set_array_count(12);
  facts.job.set_preemptions(1);
  facts.job.set_estimate_basis("unknown: jobs that run or are ahead have no time limit");
  v1::Wait& wait = *facts.job.add_waits();
  wait.set_what("resources");
  v1::WaitedFor& cordoned = *wait.add_missing();
  cordoned.set_node("gpu-3");
  cordoned.set_reason("cordoned");
  cordoned.set_remedy("muster node uncordon gpu-3");
  v1::WaitedFor& dependency = *wait.add_missing();
  dependency.set_reason("job prepare-k2 has not succeeded yet");
  std::string text = WhyText(facts, kNow);
  EXPECT_THAT(text, HasSubstr("It cannot start yet:\n"
                              "  gpu-3: cordoned\n"
                              "    -> muster node uncordon gpu-3\n"
                              "  job prepare-k2 has not succeeded yet\n"));
  EXPECT_THAT(text, HasSubstr("It is task 4 of array sweep-9qd3a, which has 12.\n"));
  EXPECT_THAT(text, HasSubstr("Jobs of a higher class have preempted it once.\n"));
  EXPECT_THAT(text, HasSubstr("No start time can be estimated: jobs that run or are ahead have no "
                              "time limit.\n"));
  facts.job.set_estimate_basis("time limits and progress of running jobs");
  *facts.job.mutable_estimated_start_time() = ToProto(kNow + absl::Minutes(4));
  text = WhyText(facts, kNow);
  EXPECT_THAT(text, HasSubstr("It should start within 4m, at "));
  EXPECT_THAT(text, HasSubstr(". Estimated from time limits and progress of running jobs.\n"));
  EXPECT_EQ(WhyJson(facts, kNow)["estimate_basis"], facts.job.estimate_basis());
}

TEST(WhyTest, ExplainsJobThatDoesNotFit) {
  WhyFacts facts;
  facts.job = JobIn(v1::QUEUED);
  facts.job.set_queue_position(1);
  facts.job.set_unplaceable("needs 5 nodes with 1 free slot; the cluster has 2, 3 too few");
  v1::Wait& wait = *facts.job.add_waits();
  wait.set_what("resources");
  wait.add_missing()->set_reason("needs 5 nodes with 1 free slot; 2 available");
  EXPECT_THAT(WhyText(facts, kNow), Not(HasSubstr("cannot start yet")));
  v1::WaitedFor& node = *wait.add_missing();
  node.set_node("node-1");
  node.set_reason("in conflict");
  const std::string text = WhyText(facts, kNow);
  EXPECT_THAT(text, HasSubstr("train-x7k2 is queued, position 1; submitted 1m30s ago.\n"));
  EXPECT_THAT(text, HasSubstr("It does not fit on the cluster: needs 5 nodes with 1 free slot; the "
                              "cluster has 2, 3 too few. Other jobs do not wait for it.\n"));
  EXPECT_THAT(text, Not(HasSubstr("start time")));
  EXPECT_THAT(text, HasSubstr("It cannot start yet:\n"));
  EXPECT_THAT(text, HasSubstr("in conflict"));
  EXPECT_THAT(text, Not(HasSubstr("2 available")));
  EXPECT_EQ(WhyJson(facts, kNow)["unplaceable"], facts.job.unplaceable());
}

TEST(WhyTest, NamesUnkillableRanks) {
  WhyFacts facts;
  facts.job = JobIn(v1::CANCELLED);
  v1::RankStatus& rank = *facts.job.add_ranks();
  rank.set_rank(3);
  rank.set_node("node-2");
  rank.set_unkillable(true);
  EXPECT_THAT(WhyText(facts, kNow), HasSubstr("Rank 3 on node-2 outlived SIGKILL; "));
}

TEST(WhyTest, ExplainsDelayedJob) {
  WhyFacts facts;
  facts.job = JobIn(v1::QUEUED);
  facts.job.set_reason("LaunchFailed");
  facts.job.set_message("fork: no more processes; attempt 4 of 10 follows after 8s");
  v1::Wait& wait = *facts.job.add_waits();
  wait.set_what("delay");
  wait.add_missing()->set_reason("attempt 4 of 10 follows in 5s");
  *facts.job.mutable_estimated_start_time() = ToProto(kNow + absl::Seconds(5));
  const std::string text = WhyText(facts, kNow);
  EXPECT_THAT(text, HasSubstr("It cannot start yet:\n  attempt 4 of 10 follows in 5s\n"));
  EXPECT_THAT(text, HasSubstr("It should start within 5s, at "));
  EXPECT_THAT(text, Not(HasSubstr("jobs ahead")));
}

TEST(WhyTest, ExplainsRunningJob) {
  WhyFacts facts;
  facts.job = JobIn(v1::RUNNING);
  AddRank(facts.job, 815, 41, 0.2);
  AddRank(facts.job, 812, 40, 7.25);
  v1::Wait& wait = *facts.job.add_waits();
  wait.set_what("barrier world/12");
  *wait.mutable_since() = ToProto(absl::Seconds(7));
  v1::WaitedFor& missing = *wait.add_missing();
  missing.set_rank(1);
  missing.set_node("node-1");
  missing.set_reason("phase CONNECTED (training), pid 4001, last seen 7.2 s ago");
  const std::string text = WhyText(facts, kNow);
  EXPECT_THAT(text, HasSubstr("train-x7k2 is running, generation 1; first started 1m20s ago.\n"));
  EXPECT_THAT(text,
              HasSubstr("Waiting for barrier world/12 for 7.0 s; missing:\n  rank 1 on node-1: "
                        "phase CONNECTED (training), pid 4001, last seen 7.2 s ago\n"));
  EXPECT_THAT(text, HasSubstr("Slowest: rank 1 on node-1, pid 4001: it has finished 812 "
                              "collectives, others 815; last report 7.2 s ago.\n"));
  const nlohmann::ordered_json slowest = WhyJson(facts, kNow)["slowest"];
  EXPECT_EQ(slowest["rank"], 1);
  EXPECT_EQ(slowest["judged_by"], "collectives");
  EXPECT_EQ(slowest["furthest_collective_sequence"], 815);
  EXPECT_EQ(slowest["silent_seconds"], 7.25);
}

TEST(WhyTest, NamesStragglers) {
  WhyFacts facts;
  facts.job = JobIn(v1::RUNNING);
  for (int i = 0; i < 4; ++i) AddRank(facts.job, 815 - i, 41, 0.2);
  for (const uint32_t number : {1u, 2u}) {
    v1::Straggler& straggler = *facts.job.add_stragglers();
    straggler.set_rank(number);
    straggler.set_slowdown(1 + 0.1 * number);
    straggler.set_phase("compute");
    straggler.set_since_step(12);
    straggler.set_message(absl::StrCat("rank ", number, " is slow"));
  }
  facts.job.mutable_ranks(2)->set_slowdown(1.24);
  const std::string text = WhyText(facts, kNow);
  EXPECT_THAT(text,
              HasSubstr("Slowest: rank 2 is slow; now 24 %; pid 4002, last report 0.2 s ago.\n"
                        "  rank 1 is slow\n"));
  EXPECT_THAT(text, Not(HasSubstr("No rank is waiting")));
  const nlohmann::ordered_json json = WhyJson(facts, kNow);
  EXPECT_EQ(json["slowest"]["rank"], 2);
  EXPECT_EQ(json["slowest"]["judged_by"], "own_time");
  EXPECT_EQ(json["slowest"]["slowdown"], 1.24);
  EXPECT_EQ(json["slowest"]["since_step"], 12);
  EXPECT_EQ(json["stragglers"].size(), 2u);
}

// The ranks of a command report no collectives or steps; only the age of their reports is known.
TEST(WhyTest, ExplainsRunningCommand) {
  WhyFacts facts;
  facts.job = JobIn(v1::RUNNING);
  AddRank(facts.job, 0, 0, 0.2);
  AddRank(facts.job, 0, 0, 3);
  EXPECT_THAT(WhyText(facts, kNow),
              HasSubstr("Its ranks report no collectives or steps. Oldest report: rank 1 on "
                        "node-1, pid 4001, last report 3.0 s ago.\n"));
  EXPECT_EQ(WhyJson(facts, kNow)["slowest"]["judged_by"], "silence");
}

TEST(WhyTest, ExplainsHungJob) {
  WhyFacts facts;
  facts.job = JobIn(v1::RUNNING);
  AddRank(facts.job, 0, 0, 3);
  AddRank(facts.job, 0, 0, 3);
  v1::Hang& hang = *facts.job.mutable_hang();
  *hang.mutable_silence() = ToProto(absl::Minutes(10));
  *hang.mutable_time() = ToProto(kNow - absl::Minutes(2));
  hang.set_suspect_rank(1);
  hang.set_message("rank 1 on node-1 sleeps, while rank 0 on node-1 waits in all_reduce");
  for (const char* stack : {"main thread:\n  wait\n", "main thread:\n  nanosleep\n  main\n"}) {
    v1::RankInspection& rank = *hang.add_ranks();
    rank.set_rank(hang.ranks_size() - 1);
    rank.set_stack(stack);
  }
  const std::string text = WhyText(facts, kNow);
  EXPECT_THAT(text, HasSubstr("It hangs: no output, progress or file input and output of any rank "
                              "for 12m; rank 1 on node-1 sleeps, while rank 0 on node-1 waits in "
                              "all_reduce.\n  main thread:\n    nanosleep\n    main\n"));
  EXPECT_THAT(text, Not(HasSubstr("No rank is waiting")));
  EXPECT_EQ(WhyJson(facts, kNow)["hang"]["suspect_rank"], 1);
  facts.job.mutable_spec()->mutable_train();
  EXPECT_THAT(WhyText(facts, kNow),
              HasSubstr("It hangs: no rank has completed a step for 12m; rank 1 on node-1 sleeps"));
}

v1::Job FailedJob() {
  v1::Job job = JobIn(v1::FAILED);
  job.set_reason("RankFailed");
  job.set_message("rank 0 on node-1 exited with code 7");
  job.set_exit_code(7);
  *job.mutable_finish_time() = ToProto(kNow - absl::Seconds(20));
  v1::FirstFailure& failure = *job.mutable_first_failure();
  failure.set_generation(1);
  failure.set_reason("RankFailed");
  failure.set_rank(0);
  failure.set_message("rank 0 on node-1 exited with code 7");
  failure.mutable_exit()->set_exit_code(7);
  failure.mutable_exit()->set_stderr_tail("Traceback\nValueError: \x1b[2Jno\n");
  for (int rank = 0; rank < 4; ++rank) {
    v1::ExitInfo& exit = *AddRank(job, 0, 0, 0).mutable_exit();
    exit.set_exit_code(rank == 0 ? 7 : rank == 3 ? 1 : 0);
    if (rank == 1 || rank == 2) {
      exit.set_signal(15);
      exit.set_stopped_by_worker(true);
    }
  }
  return job;
}

TEST(WhyTest, ExplainsFailedJob) {
  WhyFacts facts;
  facts.job = FailedJob();
  const std::string text = WhyText(facts, kNow);
  EXPECT_THAT(text,
              HasSubstr("train-x7k2 failed 20s ago, 60.0 s after its first start; exit status "
                        "7.\nFirst failure, generation 1: RankFailed: rank 0 on node-1 exited "
                        "with code 7\n"));
  EXPECT_THAT(text, HasSubstr("    ValueError: \\x1b[2Jno\n"));
  EXPECT_THAT(
      text,
      HasSubstr(
          "2 other ranks were stopped because of it; 1 other rank failed as a consequence.\n"));
  const nlohmann::ordered_json json = WhyJson(facts, kNow);
  EXPECT_EQ(json["exit_code"], 7);
  EXPECT_EQ(json["first_failure"]["rank"], 0);
  EXPECT_FALSE(json.contains("slowest"));
  facts.job.set_past_failures_omitted(1);
  EXPECT_THAT(WhyText(facts, kNow),
              HasSubstr("1 more failure, between these, is no longer kept.\nFirst failure, "));
}

TEST(WhyTest, ExplainsOtherStates) {
  WhyFacts facts;
  facts.job = JobIn(v1::HELD);
  EXPECT_THAT(WhyText(facts, kNow), HasSubstr("`muster release train-x7k2` lets it start."));
  facts.job = JobIn(v1::STOPPING);
  facts.job.set_reason("CancelledByUser");
  facts.job.set_message("cancelled");
  EXPECT_THAT(WhyText(facts, kNow), HasSubstr("is stopping: CancelledByUser: cancelled"));
  facts.job = JobIn(v1::SUCCEEDED);
  EXPECT_THAT(WhyText(facts, kNow), HasSubstr("train-x7k2 succeeded"));
  EXPECT_THAT(WhyText(facts, kNow), Not(HasSubstr("exit status")));
  facts.job = JobIn(v1::CANCELLED);
  EXPECT_THAT(WhyText(facts, kNow), HasSubstr("train-x7k2 was cancelled"));
}

}  // namespace
}  // namespace muster::cli
