// The time of jobs by cause, in the whole core.
#include <map>
#include <string>

#include "absl/time/time.h"
#include "common/time/proto_time.h"
#include "coordinator/core/reasons.h"
#include "coordinator/core/records.h"
#include "coordinator/core/testing/harness.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/muster/v1/store.pb.h"

namespace muster::core {
namespace {

using ::testing::ElementsAre;
using testing::ExitWith;
using testing::Harness;
using testing::KilledBy;
using testing::MakeCommandSpec;
using testing::MakeSpec;
using ::testing::Pair;

class GoodputTest : public ::testing::Test {
 protected:
  void Submit(v1::JobSpec spec) { job_ = cluster_.Submit(std::move(spec)); }
  void Pass(double seconds) { cluster_.Advance(absl::Seconds(seconds)); }
  // The rank reports its phase and step.
  void Progress(const std::string& phase, uint64_t step = 0, double checkpoint_stall = 0,
                uint32_t rank = 0, const std::string& node = "a") {
    v1::RankReport report;
    report.set_rank(rank);
    report.mutable_progress()->set_phase(phase);
    report.mutable_progress()->set_step(step);
    report.mutable_progress()->set_checkpoint_stall_seconds(checkpoint_stall);
    cluster_.Report(node, job_, report);
  }
  void ReportAll(v1::RankPhase phase) { cluster_.ReportPhaseOfAll(job_, phase); }
  // The worker could not start rank 0; `anywhere`: nor could another one.
  void FailLaunch(bool anywhere) {
    v1::RankReport report;  // without pid: the rank never ran
    report.set_phase(v1::EXITED);
    *report.mutable_exit() = ExitWith(126);
    report.mutable_exit()->mutable_failure()->set_message("no such file");
    report.mutable_exit()->mutable_failure()->set_not_retryable(anywhere);
    cluster_.Report("a", job_, report);
  }
  // Wall seconds by cause, or by the name of the node.
  std::map<std::string, double> Seconds() const {
    std::map<std::string, double> seconds;
    const v1::Job job = cluster_.Get(job_);
    for (const v1::Goodput::Cause& cause : job.goodput().causes()) {
      seconds[cause.node().empty() ? cause.cause() : cause.node()] =
          absl::ToDoubleSeconds(FromProto(cause.wall_time()));
    }
    return seconds;
  }
  std::string Current() const { return cluster_.Get(job_).goodput().current_cause(); }
  // The cluster's totals, as exported.
  std::map<std::string, double> SlotSeconds() {
    std::map<std::string, double> seconds;
    for (const auto& [series, total] : cluster_.core().TakeStats().totals) {
      if (series.family->name == "muster_job_slot_seconds_total") seconds[series.labels[0]] = total;
    }
    return seconds;
  }

  Harness cluster_;
  std::string job_;
};

TEST_F(GoodputTest, SuccessfulTrainJob) {
  Submit(MakeSpec(1, 2));
  Pass(10);
  cluster_.Join("a", 2);
  Pass(1);
  ReportAll(v1::STARTED);
  Progress("opening-device");
  Pass(2);
  Progress("loading-data");
  Progress("loading-data", 0, 0, /*rank=*/1);
  EXPECT_EQ(Current(), "preparing_data");
  Pass(3);
  cluster_.ReportPhase("a", job_, 0, v1::JOINED);
  Pass(4);  // rank 1 still prepares
  cluster_.ReportPhase("a", job_, 1, v1::JOINED);
  EXPECT_EQ(Current(), "starting");
  Progress("connecting");
  Pass(1);
  ReportAll(v1::CONNECTED);
  EXPECT_EQ(Current(), "starting");
  Pass(1);
  Progress("training");
  Pass(30);
  Progress("training", 10);
  Pass(30);
  Progress("evaluating", 20);
  Pass(6);
  Progress("training", 20);
  Pass(30);
  Progress("training", 30, /*checkpoint_stall=*/2);
  Progress("checkpointing", 30, 2);
  Pass(5);
  Progress("finished", 30, 7);
  Pass(0.5);
  EXPECT_EQ(Current(), "stopping");
  cluster_.ExitAll(job_, {});
  ASSERT_EQ(cluster_.State(job_), v1::SUCCEEDED);
  Pass(1000);
  EXPECT_THAT(Seconds(),
              ElementsAre(Pair("checkpoint_stall", 7), Pair("evaluating", 6),
                          Pair("preparing_data", 7), Pair("productive", 88), Pair("queued", 10),
                          Pair("starting", 5), Pair("stopping", 0.5)));
  const v1::Job job = cluster_.Get(job_);
  EXPECT_DOUBLE_EQ(job.goodput().goodput_ratio(), 88 / 113.5);
  EXPECT_EQ(SlotSeconds().at("productive"), 2 * 88);
  EXPECT_EQ(SlotSeconds().count("queued"), 0u);
}

TEST_F(GoodputTest, FailureAndRestartWithRedoneSteps) {
  cluster_.Join("a");
  Submit(MakeSpec(1));
  cluster_.BringUp(job_);
  Progress("training");
  Pass(50);
  Progress("training", 50);
  Pass(4);
  cluster_.ReportExit("a", job_, 0, KilledBy(9));
  ASSERT_EQ(cluster_.State(job_), v1::STARTING);
  Pass(2);
  cluster_.BringUp(job_);
  Progress("training");
  Pass(1);
  Progress("training", 41);
  EXPECT_EQ(Current(), "redone");
  Pass(9);
  Progress("training", 50);
  EXPECT_EQ(Current(), "productive");
  Pass(10);
  Progress("training", 60);
  EXPECT_THAT(Seconds(),
              ElementsAre(Pair("productive", 60), Pair("recovery", 7), Pair("redone", 9)));
  EXPECT_THAT(SlotSeconds(),
              ElementsAre(Pair("productive", 60), Pair("recovery", 7), Pair("redone", 9)));
}

// The unfinished step that the failed rank itself reports counts.
TEST_F(GoodputTest, FailureReportContainsStep) {
  cluster_.Join("a");
  Submit(MakeSpec(1));
  cluster_.BringUp(job_);
  Progress("training", 1);
  Pass(5);
  v1::RankReport report;
  report.set_rank(0);
  report.mutable_failure()->set_message("bad batch");
  report.mutable_failure()->set_code(13);
  report.mutable_failure()->set_step(6);
  cluster_.Report("a", job_, report);
  EXPECT_EQ(Current(), "recovery");
  Pass(1);
  cluster_.ReportExit("a", job_, 0, ExitWith(1));
  EXPECT_THAT(Seconds(), ElementsAre(Pair("productive", 5), Pair("recovery", 1)));
}

TEST_F(GoodputTest, JobThatFailsForGood) {
  cluster_.Join("a");
  v1::JobSpec spec = MakeSpec(1);
  spec.mutable_restart()->set_max(0);
  Submit(spec);
  cluster_.BringUp(job_);
  Progress("training", 1);
  Pass(5);
  Progress("training", 2);
  Pass(3);
  cluster_.ReportExit("a", job_, 0, ExitWith(1));
  ASSERT_EQ(cluster_.State(job_), v1::FAILED);
  Pass(100);
  EXPECT_THAT(Seconds(), ElementsAre(Pair("productive", 5), Pair("recovery", 3)));
}

TEST_F(GoodputTest, LostNode) {
  cluster_.Join("a");
  cluster_.Join("b");
  Submit(MakeSpec(2));
  cluster_.BringUp(job_);
  Progress("training");
  Pass(2);
  Progress("training", 10);
  cluster_.SendHeartbeat("b");
  // The node is silent until its lease has ended, the rank on the other one without a step.
  cluster_.CloseStream("b");
  const absl::Time silent = cluster_.now().wall;
  cluster_.Run(absl::Seconds(12), {"a"});
  ASSERT_EQ(cluster_.State(job_), v1::STOPPING);
  cluster_.ReportExit("a", job_, 0, ExitWith(1));
  ASSERT_EQ(cluster_.State(job_), v1::QUEUED);
  EXPECT_EQ(Current(), "lost_to_node");
  cluster_.Run(absl::Seconds(20), {"a"});
  cluster_.Join("b", 1, /*incarnation=*/2);
  cluster_.BringUp(job_);
  Progress("training");
  Pass(1);
  Progress("training", 6);
  const double lost = absl::ToDoubleSeconds(cluster_.now().wall - silent);
  Pass(4);
  Progress("training", 10);
  EXPECT_THAT(Seconds(), ElementsAre(Pair("b", lost), Pair("productive", 2), Pair("redone", 4)));
  // Without the time in which the job held no slots.
  EXPECT_EQ(cluster_.core().TakeStats().lost_slot_seconds_by_node.at("b"), 2 * 13);
}

TEST_F(GoodputTest, FailedLaunch) {
  cluster_.Join("a");
  Submit(MakeCommandSpec(1));
  Pass(3);
  FailLaunch(/*anywhere=*/false);
  ASSERT_EQ(cluster_.Get(job_).first_failure().reason(), reasons::kLaunchFailed);
  EXPECT_THAT(Seconds(), ElementsAre(Pair("a", 3)));
}

TEST_F(GoodputTest, LaunchThatWouldFailAnywhereIsNoLossOfNode) {
  cluster_.Join("a");
  Submit(MakeCommandSpec(1));
  Pass(3);
  FailLaunch(/*anywhere=*/true);
  ASSERT_EQ(cluster_.State(job_), v1::FAILED);
  EXPECT_THAT(Seconds(), ElementsAre(Pair("starting", 3)));
}

TEST_F(GoodputTest, Requeue) {
  cluster_.Join("a");
  Submit(MakeSpec(1));
  cluster_.BringUp(job_);
  Progress("training");
  Pass(10);
  Progress("training", 10);
  ASSERT_TRUE(cluster_.Requeue(job_).ok());
  EXPECT_EQ(Current(), "requeue");
  Pass(3);
  cluster_.ReportExit("a", job_, 0, ExitWith(143));
  ASSERT_EQ(cluster_.State(job_), v1::STARTING);
  Pass(2);
  cluster_.BringUp(job_);
  Pass(1);
  Progress("training", 11);
  Pass(5);
  Progress("training", 15);
  EXPECT_THAT(Seconds(), ElementsAre(Pair("productive", 15), Pair("requeue", 6)));
}

TEST_F(GoodputTest, DrainOfNode) {
  cluster_.Join("a");
  Submit(MakeSpec(1));
  cluster_.BringUp(job_);
  Progress("training");
  Pass(10);
  Progress("training", 10);
  cluster_.Step(CordonNode{NodeName("a"), "fan", /*drain=*/true});
  Pass(3);
  cluster_.ReportExit("a", job_, 0, ExitWith(143));
  Pass(40);
  EXPECT_EQ(Current(), "queued");
  cluster_.Join("b");
  Pass(2);
  cluster_.BringUp(job_);
  Progress("training", 11, 0, /*rank=*/0, "b");
  Pass(1);
  EXPECT_THAT(Seconds(),
              ElementsAre(Pair("productive", 11), Pair("queued", 40), Pair("requeue", 5)));
}

TEST_F(GoodputTest, HeldJob) {
  Submit(MakeSpec(1));
  Pass(2);
  ASSERT_TRUE(cluster_.Hold(job_).ok());
  Pass(30);
  ASSERT_TRUE(cluster_.Release(job_).ok());
  Pass(4);
  EXPECT_THAT(Seconds(), ElementsAre(Pair("held", 30), Pair("queued", 6)));
  ASSERT_TRUE(cluster_.Cancel(job_).ok());
  Pass(100);
  EXPECT_THAT(Seconds(), ElementsAre(Pair("held", 30), Pair("queued", 6)));
  EXPECT_EQ(cluster_.Get(job_).goodput().goodput_ratio(), 0);
}

TEST_F(GoodputTest, Cancel) {
  cluster_.Join("a");
  Submit(MakeSpec(1));
  cluster_.BringUp(job_);
  Progress("training");
  Pass(10);
  ASSERT_TRUE(cluster_.Cancel(job_).ok());
  Pass(3);
  cluster_.ReportExit("a", job_, 0, ExitWith(143));
  ASSERT_EQ(cluster_.State(job_), v1::CANCELLED);
  EXPECT_THAT(Seconds(), ElementsAre(Pair("productive", 10), Pair("stopping", 3)));
}

TEST_F(GoodputTest, CommandJobWithoutSteps) {
  cluster_.Join("a");
  Submit(MakeCommandSpec(1));
  Pass(1);
  ReportAll(v1::STARTED);
  Pass(20);
  cluster_.SendHeartbeat("a");
  EXPECT_EQ(Current(), "productive");
  EXPECT_EQ(SlotSeconds().at("productive"), 20);
  Pass(20);
  cluster_.ReportExit("a", job_, 0, ExitWith(3));
  Pass(2);
  ReportAll(v1::STARTED);
  Pass(5);
  cluster_.ReportExit("a", job_, 0, {});
  ASSERT_EQ(cluster_.State(job_), v1::SUCCEEDED);
  EXPECT_THAT(Seconds(),
              ElementsAre(Pair("productive", 45), Pair("recovery", 2), Pair("starting", 1)));
  EXPECT_EQ(SlotSeconds().at("productive"), 45);
}

TEST_F(GoodputTest, CommandJobWithSteps) {
  cluster_.Join("a");
  Submit(MakeCommandSpec(1));
  ReportAll(v1::STARTED);
  Pass(20);
  Progress("training", 100);
  Pass(7);
  cluster_.ReportExit("a", job_, 0, ExitWith(3));
  ReportAll(v1::STARTED);
  EXPECT_EQ(Current(), "recovery");
  Pass(2);
  Progress("training", 91);
  Pass(5);
  Progress("training", 111);
  EXPECT_THAT(Seconds(), ElementsAre(Pair("productive", 20 + 5 * 11 / 20.0), Pair("recovery", 9),
                                     Pair("redone", 5 * 9 / 20.0)));
}

TEST_F(GoodputTest, RestartOfCoordinatorChargesTheCurrentCause) {
  cluster_.Join("a");
  Submit(MakeSpec(1));
  cluster_.BringUp(job_);
  Progress("training", 10);
  Pass(10);
  Progress("evaluating", 20);  // written, because the last record is ten seconds old
  Pass(5);
  cluster_.Restart();
  Pass(60);
  EXPECT_THAT(Seconds(), ElementsAre(Pair("evaluating", 65), Pair("productive", 10)));
  // The record also says which steps were done before.
  v1::Hello hello = cluster_.MakeHello("a", 1);
  v1::RankReport rank = Harness::MakeReport(0, v1::CONNECTED);
  rank.mutable_progress()->set_phase("training");
  rank.mutable_progress()->set_step(20);
  *hello.add_inventory() = cluster_.MakeInventory(job_, {rank});
  cluster_.Open(hello);
  Pass(10);
  cluster_.ReportExit("a", job_, 0, KilledBy(9));
  cluster_.BringUp(job_);
  Progress("training", 16);
  Pass(4);
  Progress("training", 20);
  EXPECT_THAT(Seconds(), ElementsAre(Pair("evaluating", 65), Pair("productive", 10),
                                     Pair("recovery", 10), Pair("redone", 4)));
}

TEST_F(GoodputTest, StoreWithoutAccounts) {
  cluster_.Join("a");
  Submit(MakeSpec(1));
  cluster_.BringUp(job_);
  const std::string finished = cluster_.Submit(MakeSpec(1));
  ASSERT_TRUE(cluster_.Cancel(finished).ok());
  Pass(40);
  for (const std::string& job : {job_, finished}) {
    v1::JobRecord record;
    ASSERT_TRUE(record.ParseFromString(cluster_.records().at(JobKey(job))));
    record.clear_time_account();
    cluster_.PutRecord(JobKey(job), record.SerializeAsString());
  }
  cluster_.Restart();
  Pass(2);
  EXPECT_THAT(Seconds(), ElementsAre(Pair("productive", 2), Pair("unrecorded", 40)));
  EXPECT_FALSE(cluster_.Get(finished).has_goodput());
}

TEST_F(GoodputTest, ReportOfOwners) {
  cluster_.Join("a", 2);
  Submit(MakeSpec(1, 2));
  cluster_.BringUp(job_);
  Progress("training");
  Pass(3000);
  Progress("training", 10);
  Progress("evaluating", 10);
  Pass(600);
  const auto check = [](const v1::GetReportResponse& report) {
    const v1::GetReportResponse::Owner& total = report.total();
    ASSERT_EQ(total.causes_size(), 2);
    EXPECT_EQ(total.causes(0).cause(), "productive");
    EXPECT_DOUBLE_EQ(total.causes(0).slot_seconds(), 6000);
    EXPECT_EQ(total.causes(1).cause(), "evaluating");
    EXPECT_DOUBLE_EQ(total.causes(1).slot_seconds(), 1200);
    EXPECT_DOUBLE_EQ(total.goodput_ratio(), 6000 / 7200.0);
    EXPECT_DOUBLE_EQ(total.cpu_slot_seconds(), 7200);
    ASSERT_EQ(report.owners_size(), 1);
    EXPECT_DOUBLE_EQ(report.owners(0).goodput_ratio(), 6000 / 7200.0);
  };
  check(cluster_.core().GetReport(7, cluster_.now()));  // while it runs
  cluster_.ExitAll(job_, {});
  ASSERT_EQ(cluster_.State(job_), v1::SUCCEEDED);
  check(cluster_.core().GetReport(7, cluster_.now()));
  cluster_.Restart();
  check(cluster_.core().GetReport(7, cluster_.now()));
}

// A generation that lasted for days counts for each of them.
TEST_F(GoodputTest, ReportDividesLongGenerationsByDay) {
  cluster_.Join("a");
  Submit(MakeCommandSpec(1));
  ReportAll(v1::STARTED);
  cluster_.Advance(absl::Hours(96));
  cluster_.ReportExit("a", job_, 0, {});
  const v1::GetReportResponse report = cluster_.core().GetReport(1, cluster_.now());
  ASSERT_EQ(report.total().causes_size(), 1);
  EXPECT_NEAR(report.total().causes(0).slot_seconds(), report.total().cpu_slot_seconds(), 1e-6);
  EXPECT_LT(report.total().causes(0).slot_seconds(), 86400);
}

}  // namespace
}  // namespace muster::core
