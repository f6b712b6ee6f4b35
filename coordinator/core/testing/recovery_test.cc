// Recovery of a killed coordinator from its records, and the records that it rejects.
#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/time/now.h"
#include "common/time/proto_time.h"
#include "common/version.h"
#include "coordinator/core/jobs/generation.h"
#include "coordinator/core/reasons.h"
#include "coordinator/core/records.h"
#include "coordinator/core/testing/harness.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::core {
namespace {

using testing::CountSent;
using testing::ExitWith;
using testing::Harness;
using testing::MakeSpec;
using Message = v1::CoordinatorMessage;

v1::Hello WithInventory(v1::Hello hello, v1::GenerationReport report) {
  *hello.add_inventory() = std::move(report);
  return hello;
}

TEST(Recovery, RunningJobIsAdopted) {
  Harness cluster;
  cluster.Join("a");
  cluster.Join("b");
  const std::string job = cluster.Submit(MakeSpec(2));
  cluster.BringUp(job);
  cluster.Restart();
  EXPECT_EQ(cluster.State(job), v1::RUNNING);
  EXPECT_EQ(cluster.StateOf("a"), v1::SUSPECT);
  v1::RankReport report = Harness::MakeReport(0, v1::CONNECTED);
  report.mutable_progress()->set_step(12);
  cluster.Open(WithInventory(cluster.MakeHello("a", 1), cluster.MakeInventory(job, {report})));
  cluster.Open(WithInventory(cluster.MakeHello("b", 1),
                             cluster.MakeInventory(job, {Harness::MakeReport(1, v1::CONNECTED)})));
  EXPECT_EQ(cluster.Get(job).progress().step(), 12u);
  cluster.Run(absl::Seconds(30), {"a", "b"});
  cluster.ExitAll(job, ExitWith(0));
  EXPECT_EQ(cluster.State(job), v1::SUCCEEDED);
  EXPECT_EQ(cluster.Get(job).generation(), 1u);
}

TEST(Recovery, FinishedJobKeepsProgress) {
  Harness cluster;
  cluster.Join("a");
  const std::string job = cluster.Submit(MakeSpec(1));
  v1::RankReport report = Harness::MakeReport(0, v1::EXITED);
  report.mutable_progress()->set_step(20);
  report.mutable_progress()->set_total_steps(20);
  report.mutable_progress()->set_loss(0.25);
  report.mutable_progress()->set_epoch(2);
  *report.mutable_exit() = ExitWith(0);
  cluster.Report("a", job, report);
  ASSERT_EQ(cluster.State(job), v1::SUCCEEDED);
  cluster.Restart();
  EXPECT_EQ(cluster.Get(job).progress().SerializeAsString(), report.progress().SerializeAsString());
}

// A commit for each report would cost too much with thousands of jobs.
TEST(Recovery, ProgressAloneIsNotWritten) {
  Harness cluster;
  cluster.Join("a");
  const std::string job = cluster.Submit(MakeSpec(1));
  cluster.BringUp(job);
  v1::RankReport report = Harness::MakeReport(0, v1::CONNECTED);
  report.mutable_progress()->set_step(5);
  EXPECT_TRUE(cluster.Report("a", job, report).writes.empty());
  ASSERT_TRUE(cluster.Requeue(job).ok());
  cluster.Restart();
  EXPECT_EQ(cluster.Get(job).progress().step(), 5u) << "as of the latest transition";
}

TEST(Recovery, AllNodesGetFreshLease) {
  Harness cluster;
  cluster.Join("a");
  cluster.Join("idle");
  const std::string job = cluster.Submit(MakeSpec(1));
  cluster.BringUp(job);
  cluster.Advance(absl::Hours(5));
  cluster.Restart();
  EXPECT_EQ(cluster.StateOf("a"), v1::SUSPECT);
  EXPECT_EQ(cluster.StateOf("idle"), v1::SUSPECT);
  cluster.Run(absl::Seconds(9));
  EXPECT_EQ(cluster.State(job), v1::RUNNING);
  cluster.Run(absl::Seconds(2));
  EXPECT_EQ(cluster.StateOf("idle"), v1::LOST);
  EXPECT_EQ(cluster.State(job), v1::QUEUED);
  EXPECT_EQ(cluster.Get(job).reason(), reasons::kNodeLost);
}

TEST(Recovery, SendsLaunchThatWasNeverSent) {
  Harness cluster;
  cluster.Join("a");
  const std::string job = cluster.Submit(MakeSpec(1));
  cluster.Restart();
  const Effects effects = cluster.Join("a");
  EXPECT_EQ(CountSent(effects, cluster.session("a"), Message::kLaunch), 1);
  cluster.BringUp(job);
  EXPECT_EQ(cluster.State(job), v1::RUNNING);
}

TEST(Recovery, SendsWorldWhenAllRanksHaveReportedAgain) {
  Harness cluster;
  cluster.Join("a");
  cluster.Join("b");
  const std::string job = cluster.Submit(MakeSpec(2));
  cluster.ReportPhaseOfAll(job, v1::JOINED);
  cluster.Restart();
  cluster.Open(WithInventory(cluster.MakeHello("a", 1),
                             cluster.MakeInventory(job, {Harness::MakeReport(0, v1::JOINED)})));
  const Effects last = cluster.Open(WithInventory(
      cluster.MakeHello("b", 1), cluster.MakeInventory(job, {Harness::MakeReport(1, v1::JOINED)})));
  EXPECT_EQ(CountSent(last, cluster.session("a"), Message::kWorld), 1);
  EXPECT_EQ(CountSent(last, cluster.session("b"), Message::kWorld), 1);
}

TEST(Recovery, JobThatFinishedMeanwhileSucceeds) {
  Harness cluster;
  cluster.Join("a");
  const std::string job = cluster.Submit(MakeSpec(1));
  cluster.Restart();
  v1::RankReport report = Harness::MakeReport(0, v1::EXITED);
  report.mutable_summary()->set_steps(99);
  const Effects effects =
      cluster.Open(WithInventory(cluster.MakeHello("a", 1), cluster.MakeInventory(job, {report})));
  EXPECT_EQ(cluster.State(job), v1::SUCCEEDED);
  EXPECT_EQ(cluster.Get(job).summary().steps(), 99u);
  EXPECT_EQ(CountSent(effects, cluster.session("a"), Message::kForget), 1);
}

TEST(Recovery, KeepsSummaryOfExitedRank) {
  Harness cluster;
  cluster.Join("a");
  cluster.Join("b");
  const std::string job = cluster.Submit(MakeSpec(2));
  v1::RankReport report = Harness::MakeReport(0, v1::EXITED);
  report.mutable_summary()->set_steps(99);
  cluster.Report("a", job, report);
  cluster.Restart();
  cluster.Open(WithInventory(cluster.MakeHello("b", 1),
                             cluster.MakeInventory(job, {Harness::MakeReport(1, v1::EXITED)})));
  EXPECT_EQ(cluster.State(job), v1::SUCCEEDED);
  EXPECT_EQ(cluster.Get(job).summary().steps(), 99u);
}

TEST(Recovery, TimeLimitSurvivesCoordinatorRestart) {
  Harness cluster;
  cluster.Join("a");
  v1::JobSpec spec = MakeSpec(1);
  *spec.mutable_time_limit() = ToProto(absl::Minutes(10));
  const std::string job = cluster.Submit(spec);
  cluster.BringUp(job);
  cluster.Run(absl::Minutes(9), {"a"});
  cluster.Restart();
  cluster.Open(WithInventory(cluster.MakeHello("a", 1),
                             cluster.MakeInventory(job, {Harness::MakeReport(0, v1::CONNECTED)})));
  EXPECT_EQ(cluster.State(job), v1::RUNNING);
  cluster.Run(absl::Minutes(2), {"a"});
  EXPECT_EQ(cluster.State(job), v1::STOPPING);
}

TEST(Recovery, CordonedNodesStayCordoned) {
  v1::NodeRecord node;
  node.set_name("a");
  node.set_incarnation(1);
  node.set_cordoned(true);
  node.set_cordon_reason("bad memory");
  const store::Mutation schema = PutSchema();
  const store::Mutation put = Put(node);
  Core core(Harness::DefaultOptions());
  ASSERT_TRUE(core.Load({{schema.key, *schema.value}, {put.key, *put.value}}, Now()).ok());
  ASSERT_EQ(core.ListNodes(Now()).size(), 1u);
  EXPECT_TRUE(core.ListNodes(Now())[0].cordoned());
}

std::vector<std::string> KeysWritten(const Effects& effects, const std::string& prefix) {
  std::vector<std::string> keys;
  for (const store::Mutation& write : effects.writes) {
    if (write.key.rfind(prefix, 0) == 0) keys.push_back(write.key);
  }
  return keys;
}

TEST(Recovery, ExitWritesOnlyItsNodesRecord) {
  Harness cluster;
  cluster.Join("a", 2);
  cluster.Join("b", 2);
  const std::string job = cluster.Submit(MakeSpec(2, 2));
  cluster.BringUp(job);
  const std::string generation = "generation/" + job;
  const std::string placement = "placement/" + job + "/0000000001/000000000";
  const Effects first = cluster.ReportExit("b", job, 2, ExitWith(0));
  EXPECT_THAT(KeysWritten(first, "placement/"), ::testing::ElementsAre(placement + "1"));
  EXPECT_THAT(KeysWritten(first, "generation/"), ::testing::IsEmpty());
  // Two ranks of a node in one report cause one write.
  v1::WorkerMessage both;
  *both.mutable_report() = cluster.MakeInventory(
      job, {Harness::MakeReport(0, v1::EXITED), Harness::MakeReport(1, v1::EXITED)});
  EXPECT_THAT(KeysWritten(cluster.SendMessage("a", both), "placement/"),
              ::testing::ElementsAre(placement + "0"));
  const Effects last = cluster.ReportExit("b", job, 3, ExitWith(0));
  EXPECT_THAT(KeysWritten(last, "placement/"), ::testing::ElementsAre(placement + "1"));
  EXPECT_THAT(KeysWritten(last, "generation/"), ::testing::ElementsAre(generation + "/0000000001"));
}

TEST(Recovery, BoundsEvents) {
  Harness cluster;
  const std::string job = cluster.Submit(MakeSpec(1));
  Core& core = cluster.core();
  std::map<std::string, std::string> records = cluster.records();
  for (size_t i = 0; i < limits::kEventsPerJob; ++i) {
    Effects effects = i % 2 == 0 ? core.Step(HoldJob{RequestId(i), job}, cluster.now())
                                 : core.Step(ReleaseJob{RequestId(i), job}, cluster.now());
    for (const store::Mutation& write : effects.writes) {
      if (write.value.has_value()) {
        records[write.key] = *write.value;
      } else {
        EXPECT_EQ(records.erase(write.key), 1u);
      }
    }
  }
  EXPECT_EQ(core.ListEvents(JobId(job), 0)->size(), limits::kEventsPerJob);
  EXPECT_EQ(core.ListEvents(JobId(job), 0)->front().sequence(), 2u);
  size_t kept = 0;
  for (const auto& [key, value] : records) kept += key.rfind("event/", 0) == 0;
  EXPECT_EQ(kept, limits::kEventsPerJob);
}

TEST(Recovery, BoundsNodes) {
  std::vector<store::Record> records = {{PutSchema().key, *PutSchema().value}};
  for (uint32_t i = 0; i < limits::kNodes; ++i) {
    v1::NodeRecord node;
    node.set_name(absl::StrCat("node-", i));
    node.set_incarnation(1);
    node.set_cordoned(i != 7);  // cordoned nodes are not forgotten
    records.push_back({Put(node).key, *Put(node).value});
  }
  Core core(Harness::DefaultOptions());
  ASSERT_TRUE(core.Load(records, Now()).ok());
  // Recorded nodes have a lease in which to reconnect.
  const absl::Duration lease = Harness::DefaultOptions().lease;
  const Time later = {Now().steady + lease, Now().wall + lease};
  core.Step(Tick{}, later);
  v1::Hello hello = Harness().MakeHello("new-1", 1);
  EXPECT_THAT(core.Step(SessionOpened{SessionId(1), hello, ""}, later).closes,
              ::testing::IsEmpty());
  EXPECT_FALSE(core.GetNode(NodeName("node-7"), later).ok());
  hello.set_node_name("new-2");
  const Effects refused = core.Step(SessionOpened{SessionId(2), hello, ""}, later);
  ASSERT_EQ(refused.closes.size(), 1u);
  EXPECT_EQ(refused.closes[0].status.code(), absl::StatusCode::kResourceExhausted);
}

v1::ExitInfo ExitWithText(size_t stderr_bytes, const std::string& message) {
  v1::ExitInfo exit = ExitWith(1);
  exit.set_stderr_tail(std::string(stderr_bytes, 'x'));
  exit.mutable_failure()->set_code(2);
  exit.mutable_failure()->set_message(message);
  return exit;
}

TEST(Recovery, BoundsTextOfExits) {
  constexpr uint32_t kRanks = 1024;
  Harness cluster;
  cluster.Join("a", kRanks);
  v1::JobSpec spec = MakeSpec(1, kRanks);
  spec.mutable_restart()->set_max(0);
  const std::string job = cluster.Submit(spec);
  v1::WorkerMessage message;
  v1::GenerationReport& report = *message.mutable_report();
  report = cluster.MakeInventory(job, {});
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    v1::RankReport& of_rank = *report.add_ranks();
    of_rank = Harness::MakeReport(rank, v1::EXITED);
    *of_rank.mutable_exit() =
        ExitWithText(limits::kStderrTailBytes, std::string(limits::kReportedTextBytes, 'm'));
  }
  cluster.SendMessage("a", message);
  size_t bytes = 0;
  const v1::Job failed = cluster.Get(job);
  EXPECT_EQ(failed.state(), v1::FAILED);
  for (const v1::RankStatus& rank : failed.ranks()) {
    EXPECT_EQ(rank.exit().exit_code(), 1);
    bytes += ExitTextBytes(rank.exit());
  }
  // One record holds the texts of all ranks of a node.
  EXPECT_GT(bytes, limits::kExitTextBytesPerGeneration / 8);
  EXPECT_LT(bytes, limits::kExitTextBytesPerGeneration / 8 + kRanks * 256);
  EXPECT_EQ(failed.ranks(0).exit().stderr_tail().size(), limits::kStderrTailBytes);
  EXPECT_EQ(failed.ranks(kRanks - 1).exit().stderr_tail(), "");
  EXPECT_EQ(failed.ranks(kRanks - 1).exit().failure().message().size(), 256u);
  EXPECT_EQ(failed.first_failure().exit().stderr_tail().size(), limits::kStderrTailBytes);
}

// A record with half a UTF-8 character could not be parsed.
TEST(Recovery, CutsTextAtCharacterBoundaries) {
  for (const size_t before : {4093u, 4094u, 4095u, 4096u}) {
    Harness cluster;
    cluster.Join("a");
    const std::string job = cluster.Submit(MakeSpec(1));
    const std::string text = std::string(before, 'm') + "\u6f22\u5b57";
    cluster.ReportExit("a", job, 0, ExitWithText(10, text));
    cluster.Restart();
    EXPECT_EQ(cluster.Get(job).past_failures(0).exit().failure().message(),
              text.substr(0, before <= 4093 ? before + 3 : before));
  }
}

TEST(Recovery, KeepsTheFirstAndTheNewestGenerations) {
  Harness cluster;
  cluster.Join("a");
  v1::JobSpec spec = MakeSpec(1);
  spec.mutable_restart()->set_max(100);
  const std::string job = cluster.Submit(spec);
  size_t records = 0, bytes = 0;
  for (int i = 1; i <= 40; ++i) {
    v1::ExitInfo exit = ExitWithText(100, "what went wrong");
    exit.set_exit_code(i);
    cluster.ReportExit("a", job, 0, exit);
    while (cluster.State(job) == v1::QUEUED) cluster.Run(absl::Seconds(10), {"a"});
    if (i == 32) {
      // One event per step is new.
      records = cluster.records().size() - cluster.core().ListEvents(JobId(job), 0)->size();
      bytes = cluster.records().at(JobKey(job)).size();
    }
  }
  EXPECT_EQ(cluster.records().size() - cluster.core().ListEvents(JobId(job), 0)->size(), records);
  EXPECT_LE(cluster.records().at(JobKey(job)).size(), bytes + 64);
  cluster.Restart();
  const v1::Job view = cluster.Get(job);
  ASSERT_EQ(view.past_failures_size(), 32);
  EXPECT_EQ(view.past_failures_omitted(), 8u);
  EXPECT_EQ(view.past_failures(3).generation(), 4u);
  EXPECT_EQ(view.past_failures(4).generation(), 13u);
  EXPECT_EQ(view.past_failures(31).exit().exit_code(), 40);
  const auto find = [&](uint64_t generation) {
    return cluster.core().FindRank(JobId(job), Generation(generation), Rank(0)).status().code();
  };
  EXPECT_EQ(find(4), absl::StatusCode::kUnavailable) << "its node is not connected";
  EXPECT_EQ(find(5), absl::StatusCode::kNotFound);
  EXPECT_EQ(find(13), absl::StatusCode::kUnavailable);
}

TEST(Recovery, DropsTextOfOldFailures) {
  Harness cluster;
  cluster.Join("a");
  v1::JobSpec spec = MakeSpec(1);
  spec.mutable_restart()->set_max(20);
  const std::string job = cluster.Submit(spec);
  for (int i = 0; i <= 20; ++i) {
    v1::ExitInfo exit = ExitWithText(100, "what went wrong");
    exit.set_exit_code(i + 1);
    cluster.ReportExit("a", job, 0, exit);
    while (cluster.State(job) == v1::QUEUED) cluster.Run(absl::Seconds(10), {"a"});
  }
  const v1::Job failed = cluster.Get(job);
  EXPECT_EQ(failed.state(), v1::FAILED);
  ASSERT_EQ(failed.past_failures_size(), 21);
  for (int i = 0; i <= 20; ++i) {
    EXPECT_EQ(failed.past_failures(i).generation(), i + 1u);
    EXPECT_EQ(failed.past_failures(i).exit().exit_code(), i + 1);
    EXPECT_EQ(ExitTextBytes(failed.past_failures(i).exit()), i < 5 ? 0u : 115u) << i;
  }
}

// -------------------------------------------------------------------------------------------------------
// Invalid stores.

class BadRecords : public ::testing::Test {
 protected:
  void SetUp() override {
    Harness cluster;
    cluster.Join("a");
    cluster.Submit(MakeSpec(1));
    records_ = cluster.records();
    ASSERT_TRUE(Load().ok());
  }
  absl::Status Load() {
    std::vector<store::Record> records;
    for (const auto& [key, value] : records_) records.push_back({key, value});
    return Core(Harness::DefaultOptions()).Load(records, Now()).status();
  }
  v1::GenerationRecord Generation() {
    v1::GenerationRecord record;
    EXPECT_TRUE(record.ParseFromString(records_.at("generation/job1/0000000001")));
    return record;
  }
  v1::PlacementRecord Placement() {
    v1::PlacementRecord record;
    EXPECT_TRUE(record.ParseFromString(records_.at(kPlacementKey)));
    return record;
  }
  static constexpr char kPlacementKey[] = "placement/job1/0000000001/0000000000";
  std::map<std::string, std::string> records_;
};

TEST_F(BadRecords, RejectsNewerSchema) {
  v1::SchemaRecord schema;
  schema.set_version(kSchemaVersion + 1);
  records_["meta/schema"] = schema.SerializeAsString();
  records_["whatever/the/newer/one/has"] = "x";
  EXPECT_EQ(Load().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(BadRecords, RejectsMissingSchema) {
  records_.erase("meta/schema");
  EXPECT_EQ(Load().code(), absl::StatusCode::kDataLoss);
}

TEST_F(BadRecords, RejectsGarbage) {
  records_["job/job1"] = "\xff\xff garbage";
  EXPECT_EQ(Load().code(), absl::StatusCode::kDataLoss);
}

TEST_F(BadRecords, RejectsRecordUnderWrongKey) {
  records_["job/job2"] = records_["job/job1"];
  EXPECT_EQ(Load().code(), absl::StatusCode::kDataLoss);
}

TEST_F(BadRecords, RejectsActiveJobWithoutGeneration) {
  records_.erase("generation/job1/0000000001");
  EXPECT_EQ(Load().code(), absl::StatusCode::kDataLoss);
}

TEST_F(BadRecords, RejectsActiveJobWithEndedGeneration) {
  v1::GenerationRecord record = Generation();
  record.set_over(true);
  records_["generation/job1/0000000001"] = record.SerializeAsString();
  EXPECT_EQ(Load().code(), absl::StatusCode::kDataLoss);
}

TEST_F(BadRecords, RejectsGenerationWithoutJob) {
  records_.erase("job/job1");
  EXPECT_EQ(Load().code(), absl::StatusCode::kDataLoss);
}

TEST_F(BadRecords, RejectsRankMapWithGap) {
  v1::PlacementRecord record = Placement();
  record.mutable_placement()->mutable_ranks(0)->set_rank(5);
  records_[kPlacementKey] = record.SerializeAsString();
  EXPECT_EQ(Load().code(), absl::StatusCode::kDataLoss);
}

TEST_F(BadRecords, RejectsGenerationWithoutPlacement) {
  records_.erase(kPlacementKey);
  EXPECT_EQ(Load().code(), absl::StatusCode::kDataLoss);
}

TEST_F(BadRecords, RejectsPlacementWithoutGeneration) {
  v1::PlacementRecord record = Placement();
  record.set_generation(2);
  records_["placement/job1/0000000002/0000000000"] = record.SerializeAsString();
  EXPECT_EQ(Load().code(), absl::StatusCode::kDataLoss);
}

TEST_F(BadRecords, RejectsPlacementBeyondLastNode) {
  v1::PlacementRecord record = Placement();
  record.set_node_rank(1);
  record.mutable_placement()->set_node("b");
  record.mutable_placement()->mutable_ranks(0)->set_rank(1);
  records_["placement/job1/0000000001/0000000001"] = record.SerializeAsString();
  EXPECT_EQ(Load().code(), absl::StatusCode::kDataLoss);
}

TEST_F(BadRecords, RejectsUnknownKind) {
  records_["surprise/job1"] = "x";
  EXPECT_EQ(Load().code(), absl::StatusCode::kDataLoss);
}

TEST_F(BadRecords, RejectsSlotAssignedTwice) {
  v1::JobRecord job;
  ASSERT_TRUE(job.ParseFromString(records_["job/job1"]));
  job.set_job_id("job2");
  records_["job/job2"] = job.SerializeAsString();
  v1::SpecRecord spec;
  ASSERT_TRUE(spec.ParseFromString(records_["spec/job1/0000"]));
  spec.set_id("job2");
  records_["spec/job2/0000"] = spec.SerializeAsString();
  v1::GenerationRecord record = Generation();
  record.set_job_id("job2");
  records_["generation/job2/0000000001"] = record.SerializeAsString();
  v1::PlacementRecord placement = Placement();
  placement.set_job_id("job2");
  records_["placement/job2/0000000001/0000000000"] = placement.SerializeAsString();
  const absl::Status status = Load();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("assigned twice"));
}

}  // namespace
}  // namespace muster::core
