// Owners of jobs, and removal of finished jobs and disconnected nodes.
#include <string>

#include "absl/status/status.h"
#include "coordinator/core/core.h"
#include "coordinator/core/reasons.h"
#include "coordinator/core/testing/harness.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::core {
namespace {

using ::testing::Contains;
using testing::FindSent;
using testing::Harness;
using ::testing::HasSubstr;
using testing::MakeCommandSpec;
using testing::MakeSpec;
using ::testing::Not;
using ::testing::StartsWith;

const RequestId kRequest(900);
const Actor kAlice{"alice", false};
const Actor kBob{"bob", false};
const Actor kAdmin{"root", true};

absl::Status StatusOf(const Effects& effects) {
  EXPECT_EQ(effects.replies.size(), 1u);
  return effects.replies.empty() ? absl::UnknownError("no reply") : effects.replies[0].job.status();
}

class OwnedJob {
 public:
  OwnedJob() {
    cluster_.Join("a", 2);
    SubmitJob submit{RequestId(800), JobId("job"), MakeCommandSpec(1, 2), ""};
    submit.actor = kAlice;
    cluster_.Step(submit);
  }

  void RunToEnd() {
    cluster_.BringUp("job");
    cluster_.ExitAll("job", testing::ExitWith(0));
  }
  std::string LastEvent() { return cluster_.core().ListEvents(JobId("job"), 0)->back().message(); }

  Harness cluster_;
};

TEST(Owner, IsSubmitterAndSurvivesRestart) {
  OwnedJob owned;
  EXPECT_EQ(owned.cluster_.Get("job").owner(), "alice");
  owned.cluster_.Restart();
  EXPECT_EQ(owned.cluster_.Get("job").owner(), "alice");
}

TEST(Owner, HistoryNamesWhoActed) {
  Harness cluster;  // without nodes, the job stays queued
  const std::string job = cluster.Submit(MakeCommandSpec(1));
  const auto last_event = [&] {
    return cluster.core().ListEvents(JobId(job), 0)->back().message();
  };
  cluster.Step(HoldJob{kRequest, job, kAlice});
  EXPECT_EQ(cluster.Get(job).message(), "held by alice");
  cluster.Step(ReleaseJob{kRequest, job, kBob});
  EXPECT_EQ(last_event(), "released by bob");
  cluster.Step(CancelJob{kRequest, job, std::nullopt, kAlice});
  EXPECT_EQ(last_event(), "CANCELLED: cancelled by alice");
  EXPECT_EQ(cluster.Get(job).message(), "cancelled by alice");

  OwnedJob running;
  running.cluster_.BringUp("job");
  running.cluster_.Step(RequeueJob{kRequest, "job", kAdmin});
  EXPECT_EQ(running.cluster_.Get("job").message(), "requeued by root");
}

TEST(Owner, ActorWithoutNameIsUser) {
  Harness cluster;
  const std::string job = cluster.Submit(MakeCommandSpec(1));
  EXPECT_EQ(cluster.Cancel(job)->message(), "cancelled by user");
}

TEST(RemoveJob, DeletesRecordsAndFilesOfFinishedJob) {
  OwnedJob owned;
  owned.RunToEnd();
  ASSERT_EQ(owned.cluster_.State("job"), v1::SUCCEEDED);
  const Effects effects = owned.cluster_.Step(RemoveJob{kRequest, "job", kAlice});
  EXPECT_TRUE(StatusOf(effects).ok());
  EXPECT_THAT(effects.logs, Contains("job job was removed by alice"));
  const v1::CoordinatorMessage* const forget =
      FindSent(effects, owned.cluster_.session("a"), v1::CoordinatorMessage::kForget);
  ASSERT_NE(forget, nullptr);
  EXPECT_EQ(forget->forget().job_id(), "job");
  EXPECT_EQ(forget->forget().generation(), 1u);
  EXPECT_TRUE(forget->forget().delete_files());
  EXPECT_TRUE(absl::IsNotFound(owned.cluster_.core().ResolveJob("job").status()));
  owned.cluster_.Run(absl::Milliseconds(100), {"a"});
  for (const auto& [key, value] : owned.cluster_.records()) {
    EXPECT_THAT(key, Not(HasSubstr("/job")));
  }
}

TEST(RemoveJob, OnlyOwnerAndAdminMayRemove) {
  OwnedJob owned;
  owned.RunToEnd();
  const absl::Status refused = StatusOf(owned.cluster_.Step(RemoveJob{kRequest, "job", kBob}));
  EXPECT_TRUE(absl::IsPermissionDenied(refused));
  EXPECT_EQ(refused.message(),
            "job job belongs to alice, and bob is neither its owner nor an admin");
  EXPECT_TRUE(StatusOf(owned.cluster_.Step(RemoveJob{kRequest, "job", kAdmin})).ok());
}

TEST(RemoveJob, JobWithoutOwnerIsOpenToAll) {
  Harness cluster;
  const std::string job = cluster.Submit(MakeCommandSpec(1));
  ASSERT_TRUE(cluster.Cancel(job).ok());
  EXPECT_TRUE(StatusOf(cluster.Step(RemoveJob{kRequest, job, kBob})).ok());
}

TEST(RemoveJob, RefusesUnfinishedJob) {
  OwnedJob owned;
  owned.cluster_.BringUp("job");
  const absl::Status refused = StatusOf(owned.cluster_.Step(RemoveJob{kRequest, "job", kAlice}));
  EXPECT_TRUE(absl::IsFailedPrecondition(refused));
  EXPECT_EQ(refused.message(),
            "job job is RUNNING; only a finished job can be removed: muster cancel job");
  EXPECT_TRUE(
      absl::IsNotFound(StatusOf(owned.cluster_.Step(RemoveJob{kRequest, "other", kAlice}))));
}

TEST(RemoveNode, RefusesConnectedNodeAndNodeWithRanks) {
  OwnedJob owned;
  owned.cluster_.BringUp("job");
  const absl::Status connected =
      StatusOf(owned.cluster_.Step(RemoveNode{kRequest, NodeName("a"), kAdmin}));
  EXPECT_TRUE(absl::IsFailedPrecondition(connected));
  EXPECT_EQ(
      connected.message(),
      "node a is connected; stop its worker first, or evict it: muster node remove a --force");
  owned.cluster_.CloseStream("a");
  const absl::Status with_ranks =
      StatusOf(owned.cluster_.Step(RemoveNode{kRequest, NodeName("a"), kAdmin}));
  EXPECT_TRUE(absl::IsFailedPrecondition(with_ranks));
  EXPECT_THAT(std::string(with_ranks.message()), StartsWith("node a has ranks"));
  EXPECT_TRUE(
      absl::IsNotFound(StatusOf(owned.cluster_.Step(RemoveNode{kRequest, NodeName("b"), kAdmin}))));
}

// A job on node a of a and b.
struct EvictedNode {
  explicit EvictedNode(const v1::JobSpec& spec) {
    cluster.Join("a", 1);
    job = cluster.Submit(spec);
    cluster.BringUp(job);
    cluster.Join("b", 1);
    evicted = cluster.Step(RemoveNode{kRequest, NodeName("a"), kAdmin, /*force=*/true});
  }

  Harness cluster;
  std::string job;
  Effects evicted;
};

TEST(RemoveNode, ForceEndsTheSessionAndLosesTrainRanksAtOnce) {
  EvictedNode node(MakeSpec(1));
  EXPECT_TRUE(StatusOf(node.evicted).ok());
  ASSERT_EQ(node.evicted.closes.size(), 1u);
  EXPECT_EQ(node.evicted.closes[0].status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(node.cluster.GetNode("a").name(), "");
  node.cluster.Run(absl::Seconds(5), {"b"});
  EXPECT_EQ(node.cluster.Get(node.job).generation(), 2u);
}

TEST(RemoveNode, ForceLosesCommandRanksAfterTheirLease) {
  EvictedNode node(MakeCommandSpec(1));
  EXPECT_TRUE(StatusOf(node.evicted).ok());
  const absl::Duration lease = Harness::DefaultOptions().lease;
  node.cluster.Run(lease - absl::Seconds(1), {"b"});
  EXPECT_EQ(node.cluster.Get(node.job).generation(), 1u);
  EXPECT_EQ(node.cluster.GetNode("a").state(), v1::SUSPECT);
  EXPECT_THAT(node.cluster.EventTypes(node.job), Contains(events::kNodeSuspect));
  node.cluster.Run(absl::Seconds(10), {"b"});
  EXPECT_EQ(node.cluster.Get(node.job).generation(), 2u);
  EXPECT_EQ(node.cluster.GetNode("a").name(), "");
}

TEST(RemoveNode, ForceKeepsTheWorkerOutButNotItsSuccessor) {
  EvictedNode node(MakeSpec(1));
  const Effects same = node.cluster.Join("a", 1);
  ASSERT_EQ(same.closes.size(), 1u);
  EXPECT_EQ(same.closes[0].status.code(), absl::StatusCode::kPermissionDenied);
  node.cluster.Join("a", 1, /*incarnation=*/2);
  EXPECT_EQ(node.cluster.GetNode("a").state(), v1::READY);
  node.cluster.CloseStream("a");
  EXPECT_EQ(node.cluster.GetNode("a").state(), v1::SUSPECT) << "is not removed again";
}

TEST(RemoveNode, ForecastDoesNotCountIt) {
  Harness cluster;
  for (const char* node : {"a", "b"}) cluster.Join(node, 1);
  cluster.Submit(MakeCommandSpec(3));  // waits for another node
  cluster.CloseStream("a");
  EXPECT_TRUE(StatusOf(cluster.Step(RemoveNode{kRequest, NodeName("a"), kAdmin})).ok());
  EXPECT_FALSE(cluster.core().ForecastJob(MakeCommandSpec(2), kAdmin, cluster.now()).starts_now());
}

TEST(RemoveNode, RemovesDisconnectedNodeForGood) {
  Harness cluster;
  cluster.Join("a", 1);
  cluster.Join("b", 1);
  cluster.CloseStream("a");
  EXPECT_TRUE(StatusOf(cluster.Step(RemoveNode{kRequest, NodeName("a"), kAdmin})).ok());
  EXPECT_EQ(cluster.GetNode("a").name(), "");
  cluster.Run(absl::Seconds(30), {"b"});  // past the lease that it had
  cluster.Restart();
  EXPECT_EQ(cluster.GetNode("a").name(), "");
  EXPECT_EQ(cluster.GetNode("b").name(), "b");
}

}  // namespace
}  // namespace muster::core
