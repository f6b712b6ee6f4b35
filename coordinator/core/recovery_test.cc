// What a coordinator that was killed knows again from its records, and what it refuses to believe
// of them.
#include "common/limits.h"
#include "common/proto_time.h"
#include "common/version.h"
#include "coordinator/core/reasons.h"
#include "coordinator/core/records.h"
#include "coordinator/core/testing.h"
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

TEST(Recovery, NodesThatHeldRanksGetAFreshLease) {
  Harness cluster;
  cluster.Join("a");
  cluster.Join("idle");
  const std::string job = cluster.Submit(MakeSpec(1));
  cluster.BringUp(job);
  cluster.Advance(absl::Hours(5));
  cluster.Restart();
  EXPECT_EQ(cluster.StateOf("a"), v1::SUSPECT);
  EXPECT_EQ(cluster.StateOf("idle"), v1::LOST);
  cluster.Run(absl::Seconds(9));
  EXPECT_EQ(cluster.State(job), v1::RUNNING);
  cluster.Run(absl::Seconds(2));
  EXPECT_EQ(cluster.State(job), v1::QUEUED);
  EXPECT_EQ(cluster.Get(job).reason(), reasons::kNodeLost);
}

TEST(Recovery, LaunchThatNeverLeftIsSentNow) {
  Harness cluster;
  cluster.Join("a");
  const std::string job = cluster.Submit(MakeSpec(1));
  cluster.Restart();
  const Effects effects = cluster.Join("a");
  EXPECT_EQ(CountSent(effects, cluster.session("a"), Message::kLaunch), 1);
  cluster.BringUp(job);
  EXPECT_EQ(cluster.State(job), v1::RUNNING);
}

TEST(Recovery, WorldIsSentWhenAllHaveReportedAgain) {
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

TEST(Recovery, JobThatFinishedInTheMeantimeSucceeds) {
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

TEST(Recovery, SummaryIsKeptThoughItsRankEndedBefore) {
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

TEST(Recovery, TimeLimitCountsFromTheFirstStart) {
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

TEST(Recovery, EventsAreBounded) {
  Harness cluster;
  const std::string job = cluster.Submit(MakeSpec(1));
  Core& core = cluster.core();
  std::map<std::string, std::string> records = cluster.records();
  for (size_t i = 0; i < limits::kEventsPerJob; ++i) {
    Effects effects = i % 2 == 0 ? core.Step(HoldJob{RequestId(i), JobId(job)}, cluster.now())
                                 : core.Step(ReleaseJob{RequestId(i), JobId(job)}, cluster.now());
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

// -------------------------------------------------------------------------------------------------------
// bad stores

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
  std::map<std::string, std::string> records_;
};

TEST_F(BadRecords, NewerSchemaIsRefusedInWords) {
  v1::SchemaRecord schema;
  schema.set_version(kSchemaVersion + 1);
  records_["meta/schema"] = schema.SerializeAsString();
  records_["whatever/the/newer/one/has"] = "x";
  EXPECT_EQ(Load().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(BadRecords, MissingSchema) {
  records_.erase("meta/schema");
  EXPECT_EQ(Load().code(), absl::StatusCode::kDataLoss);
}

TEST_F(BadRecords, Garbage) {
  records_["job/job1"] = "\xff\xff garbage";
  EXPECT_EQ(Load().code(), absl::StatusCode::kDataLoss);
}

TEST_F(BadRecords, UnderTheWrongKey) {
  records_["job/job2"] = records_["job/job1"];
  EXPECT_EQ(Load().code(), absl::StatusCode::kDataLoss);
}

TEST_F(BadRecords, ActiveJobWithoutItsGeneration) {
  records_.erase("generation/job1/0000000001");
  EXPECT_EQ(Load().code(), absl::StatusCode::kDataLoss);
}

TEST_F(BadRecords, ActiveJobWhoseGenerationIsOver) {
  v1::GenerationRecord record = Generation();
  record.set_over(true);
  records_["generation/job1/0000000001"] = record.SerializeAsString();
  EXPECT_EQ(Load().code(), absl::StatusCode::kDataLoss);
}

TEST_F(BadRecords, GenerationOfNoJob) {
  records_.erase("job/job1");
  EXPECT_EQ(Load().code(), absl::StatusCode::kDataLoss);
}

TEST_F(BadRecords, RankMapWithAHole) {
  v1::GenerationRecord record = Generation();
  record.mutable_nodes(0)->mutable_ranks(0)->set_rank(5);
  records_["generation/job1/0000000001"] = record.SerializeAsString();
  EXPECT_EQ(Load().code(), absl::StatusCode::kDataLoss);
}

TEST_F(BadRecords, SlotGivenTwice) {
  v1::JobRecord job;
  ASSERT_TRUE(job.ParseFromString(records_["job/job1"]));
  job.mutable_job()->set_job_id("job2");
  records_["job/job2"] = job.SerializeAsString();
  v1::GenerationRecord record = Generation();
  record.set_job_id("job2");
  records_["generation/job2/0000000001"] = record.SerializeAsString();
  const absl::Status status = Load();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("given twice"));
}

}  // namespace
}  // namespace muster::core
