// Stops end: lost directives are sent again, workers that do not know the ranks say so, and a job
// continues without ranks that cannot be killed.
#include "common/time/proto_time.h"
#include "coordinator/core/reasons.h"
#include "coordinator/core/testing/harness.h"
#include "coordinator/core/testing/totals.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::core {
namespace {

using ::testing::Contains;
using testing::CountSent;
using testing::ExitWith;
using testing::FindSent;
using testing::Harness;
using ::testing::HasSubstr;
using testing::KilledBy;
using testing::MakeSpec;
using Message = v1::CoordinatorMessage;

class Stops : public ::testing::Test {
 protected:
  // A job with a rank on each of two slots of node a.
  void SetUp() override {
    cluster_.Join("a", 2);
    job_ = cluster_.Submit(MakeSpec(1, 2));
    cluster_.BringUp(job_);
  }
  void Cancel() { ASSERT_TRUE(cluster_.Cancel(job_).ok()); }
  Effects ReportUnkillable(uint32_t rank) {
    v1::RankReport report = Harness::MakeReport(rank, v1::CONNECTED);
    report.set_unkillable(true);
    return cluster_.Report("a", job_, report);
  }
  Effects ReportUnknown() {
    v1::WorkerMessage message;
    message.mutable_unknown_generation()->set_job_id(job_);
    message.mutable_unknown_generation()->set_generation(cluster_.Get(job_).generation());
    return cluster_.SendMessage("a", message);
  }
  // A late report about a rank of generation 1.
  Effects ReportLateExit(uint32_t rank) {
    v1::WorkerMessage message;
    message.mutable_report()->set_job_id(job_);
    message.mutable_report()->set_generation(1);
    *message.mutable_report()->add_ranks() = Harness::MakeReport(rank, v1::EXITED);
    return cluster_.SendMessage("a", message);
  }
  std::string Unavailable(int slot) const {
    return cluster_.GetNode("a").slots(slot).unavailable();
  }
  v1::JobState State() const { return cluster_.State(job_); }

  Harness cluster_;
  std::string job_;
};

TEST_F(Stops, LostDirectiveIsSentAgain) {
  Cancel();
  const Effects ticks = cluster_.Run(absl::Seconds(12), {"a"});
  EXPECT_EQ(CountSent(ticks, cluster_.session("a"), Message::kStop), 2);
  const Message* const stop = FindSent(ticks, cluster_.session("a"), Message::kStop);
  EXPECT_EQ(FromProto(stop->stop().grace_period()), absl::Seconds(25)) << "the rest of 30 s";
  cluster_.ExitAll(job_, KilledBy(15));
  EXPECT_EQ(State(), v1::CANCELLED);
  EXPECT_EQ(
      CountSent(cluster_.Run(absl::Seconds(12), {"a"}), cluster_.session("a"), Message::kStop), 0);
}

TEST_F(Stops, UnknownGenerationEndsStop) {
  Cancel();
  ReportUnknown();
  EXPECT_EQ(State(), v1::CANCELLED);
  EXPECT_EQ(Unavailable(0), "");
  EXPECT_EQ(cluster_.GetNode("a").slots(0).job_id(), "");
  EXPECT_TRUE(ReportUnknown().writes.empty()) << "repeated";
}

TEST_F(Stops, UnknownGenerationOfRunningJobRestartsIt) {
  ReportUnknown();
  EXPECT_EQ(State(), v1::STARTING);
  EXPECT_EQ(cluster_.Get(job_).generation(), 2u);
  EXPECT_THAT(cluster_.Get(job_).first_failure().message(),
              HasSubstr("its worker does not know the ranks"));
}

TEST_F(Stops, JobEndsWithoutUnkillableRank) {
  Cancel();
  cluster_.ReportExit("a", job_, 0, KilledBy(15));
  ReportUnkillable(1);
  EXPECT_EQ(State(), v1::CANCELLED);
  EXPECT_TRUE(cluster_.Get(job_).ranks(1).unkillable());
  EXPECT_FALSE(cluster_.Get(job_).ranks(0).unkillable());
  EXPECT_THAT(cluster_.EventTypes(job_), Contains(events::kRankUnkillable));
  EXPECT_EQ(testing::TotalOf(cluster_.core().TakeStats(), "muster_unkillable_ranks_total"), 1);
  EXPECT_EQ(Unavailable(1), "unkillable rank 1 of " + job_ + ", pid 1001");
  EXPECT_EQ(Unavailable(0), "");

  // Its slot is excluded until it ends.
  const std::string small = cluster_.Submit(MakeSpec(1));
  EXPECT_EQ(cluster_.Get(small).ranks(0).slots(0), 0u);
  const std::string waiting = cluster_.Submit(MakeSpec(1));
  EXPECT_EQ(cluster_.State(waiting), v1::QUEUED);
  EXPECT_THAT(cluster_.Get(waiting).waits(0).missing(1).reason(),
              HasSubstr("slot 1: unkillable rank 1 of " + job_ + ", pid 1001"));
  const std::string large = cluster_.Submit(MakeSpec(1, 2));
  EXPECT_THAT(cluster_.Get(large).unplaceable(), HasSubstr("0 usable nodes"));
  const Effects ended = ReportLateExit(1);
  EXPECT_EQ(CountSent(ended, cluster_.session("a"), Message::kForget), 1);
  EXPECT_EQ(Unavailable(1), "");
  EXPECT_EQ(cluster_.State(waiting), v1::STARTING);
  EXPECT_EQ(cluster_.Get(large).unplaceable(), "");
}

TEST_F(Stops, JobThatEndsInTheQueueTellsItsLastNodes) {
  cluster_.Step(CordonNode{NodeName("a"), "maintenance"});
  ASSERT_TRUE(cluster_.Requeue(job_).ok());
  cluster_.ExitAll(job_, KilledBy(15));
  ASSERT_EQ(State(), v1::QUEUED);
  const Effects cancelled = cluster_.Step(CancelJob{RequestId(901), job_, std::nullopt, {}});
  ASSERT_EQ(State(), v1::CANCELLED);
  const Message* const forget = FindSent(cancelled, cluster_.session("a"), Message::kForget);
  ASSERT_NE(forget, nullptr);
  EXPECT_EQ(forget->forget().generation(), 1u);
  EXPECT_TRUE(forget->forget().job_ended());
}

TEST_F(Stops, RequeuedJobRunsElsewhere) {
  cluster_.Join("b", 2);
  ASSERT_TRUE(cluster_.Requeue(job_).ok());
  cluster_.ReportExit("a", job_, 0, KilledBy(15));
  ReportUnkillable(1);
  EXPECT_EQ(State(), v1::STARTING);
  EXPECT_EQ(cluster_.Get(job_).ranks(0).node(), "b");
  ReportLateExit(1);
  EXPECT_EQ(State(), v1::STARTING);
  EXPECT_EQ(cluster_.GetNode("a").slots(1).job_id(), "");
}

// The worker neither stops the rank nor reports anything about it.
TEST_F(Stops, SilentRankIsGivenUpAfterGracePeriodAndMargin) {
  Cancel();
  cluster_.ReportExit("a", job_, 0, KilledBy(15));
  cluster_.Run(absl::Seconds(89), {"a"});
  EXPECT_EQ(State(), v1::STOPPING);
  cluster_.Run(absl::Seconds(6), {"a"});
  EXPECT_EQ(State(), v1::CANCELLED);
  EXPECT_EQ(Unavailable(1), "unkillable rank 1 of " + job_ + ", pid 1001");
  ReportLateExit(1);
  EXPECT_EQ(Unavailable(1), "");
}

TEST_F(Stops, NodeWithoutStreamIsLeftToItsLease) {
  Cancel();
  cluster_.Run(absl::Seconds(89), {"a"});
  cluster_.CloseStream("a");
  cluster_.Run(absl::Seconds(6));
  EXPECT_EQ(State(), v1::STOPPING);
  cluster_.Run(absl::Seconds(5));
  EXPECT_EQ(State(), v1::CANCELLED) << "the node is lost";
  EXPECT_FALSE(cluster_.Get(job_).ranks(1).unkillable());
}

TEST_F(Stops, ShorterGracePeriodBringsDeadlineForward) {
  Cancel();
  cluster_.Step(CancelJob{RequestId(99), job_, absl::Seconds(1)});
  cluster_.Run(absl::Seconds(66), {"a"});
  EXPECT_EQ(State(), v1::CANCELLED);
}

TEST_F(Stops, UnkillableProcessOfRunningJobIsFailure) {
  cluster_.Join("b", 2);
  ReportUnkillable(1);
  EXPECT_EQ(State(), v1::STOPPING);
  cluster_.ReportExit("a", job_, 0, KilledBy(15));
  const v1::Job job = cluster_.Get(job_);
  EXPECT_EQ(job.state(), v1::STARTING);
  EXPECT_EQ(job.ranks(0).node(), "b");
  EXPECT_EQ(job.first_failure().reason(), reasons::kRankUnkillable);
  EXPECT_THAT(job.first_failure().message(),
              HasSubstr("rank 1 on a, pid 1001, has processes that outlive SIGKILL"));
}

TEST_F(Stops, SlotStaysExcludedAfterRestarts) {
  Cancel();
  cluster_.ReportExit("a", job_, 0, KilledBy(15));
  cluster_.Run(absl::Seconds(95), {"a"});
  ASSERT_EQ(State(), v1::CANCELLED);
  cluster_.Restart();
  EXPECT_TRUE(cluster_.Get(job_).ranks(1).unkillable());
  v1::Hello hello = cluster_.MakeHello("a", 2, 2);
  *hello.add_inventory() = cluster_.MakeInventory(
      job_, {Harness::MakeReport(0, v1::EXITED), Harness::MakeReport(1, v1::CONNECTED)});
  cluster_.Open(hello);
  EXPECT_EQ(Unavailable(1), "unkillable rank 1 of " + job_ + ", pid 1001");
  ReportLateExit(1);
  EXPECT_EQ(Unavailable(1), "");
}

TEST_F(Stops, StoppingJobOfRestartedCoordinatorHasDeadline) {
  Cancel();
  cluster_.Restart();
  v1::Hello hello = cluster_.MakeHello("a", 2);
  *hello.add_inventory() = cluster_.MakeInventory(
      job_, {Harness::MakeReport(0, v1::CONNECTED), Harness::MakeReport(1, v1::CONNECTED)});
  cluster_.Open(hello);
  cluster_.Run(absl::Seconds(96), {"a"});
  EXPECT_EQ(State(), v1::CANCELLED);
}

// A returning worker still runs a rank of a job that has moved on, and cannot kill it.
TEST_F(Stops, LeftoverThatCannotBeKilledIsShown) {
  cluster_.Run(absl::Seconds(11));
  v1::Hello hello = cluster_.MakeHello("a", 2);
  *hello.add_inventory() = cluster_.MakeInventory(job_, {Harness::MakeReport(1, v1::CONNECTED)});
  cluster_.Open(hello);
  EXPECT_EQ(Unavailable(1), "");
  v1::WorkerMessage message;
  message.mutable_report()->set_job_id(job_);
  message.mutable_report()->set_generation(1);
  *message.mutable_report()->add_ranks() = Harness::MakeReport(1, v1::CONNECTED);
  message.mutable_report()->mutable_ranks(0)->set_unkillable(true);
  cluster_.SendMessage("a", message);
  EXPECT_EQ(Unavailable(1), "unkillable rank 1 of " + job_ + ", pid 1001");
}

}  // namespace
}  // namespace muster::core
