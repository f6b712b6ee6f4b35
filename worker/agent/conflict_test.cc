// A worker whose ranks belong to another coordinator's store than the one that welcomes it.
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/version.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/agent/testing/agent_fixture.h"

namespace muster::agent {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class ConflictTest : public AgentTest {
 protected:
  // Starts a job under cluster "a" at commit 20, whose rank runs until "go" is unblocked.
  void StartJob() {
    MakeFifo("go");
    coordinator_->SetCluster("a", 20, "s1");
    StartBoth();
    coordinator_->Send(Launch("cat " + Path("go")));
    WaitForRank(0, IsStarted);
  }
  // The next coordinator at the worker's address has this store.
  void Replace(const std::string& cluster_id, uint64_t commit_index) {
    const int sessions = coordinator_->sessions();
    coordinator_->SetCluster(cluster_id, commit_index, "s2");
    coordinator_->BreakSession();
    ASSERT_TRUE(coordinator_->WaitForSessions(sessions + 1));
  }
  void WaitForHealth(const std::string& text) { WaitForText("/readyz?verbose", text); }
  void WaitForText(const std::string& path, const std::string& text) {
    const absl::Time give_up = absl::Now() + kPatience;
    while (Get(path).find(text) == std::string::npos && absl::Now() < give_up) sched_yield();
    EXPECT_THAT(Get(path), HasSubstr(text));
  }
  bool RankRuns() { return Get("/metrics").find(kRankRuns) != std::string::npos; }
  static constexpr char kRankRuns[] = "muster_worker_ranks{phase=\"STARTED\"} 1";
};

TEST_F(ConflictTest, HelloNamesTheCluster) {
  StartJob();
  Replace("a", 21);
  EXPECT_EQ(coordinator_->hello().cluster_id(), "a");
  EXPECT_EQ(coordinator_->hello().commit_index(), 20u);
  EXPECT_EQ(coordinator_->hello().coordinator_start(), "s1");
  EXPECT_FALSE(coordinator_->hello().machine_id().empty());
  WaitForHealth("[+]cluster ok");
}

TEST_F(ConflictTest, StopOfAnotherClusterIsNotObeyed) {
  StartJob();
  Replace("b", 90);
  WaitForHealth("[-]cluster failed: its ranks belong to cluster a, but the coordinator's is b");
  EXPECT_THAT(Get("/metrics"), HasSubstr("muster_worker_conflict 1"));
  SendStop(absl::ZeroDuration());
  coordinator_->Send(Launch("true", 1, /*generation=*/2));
  Replace("a", 20);
  WaitForHealth("[+]cluster ok");
  EXPECT_TRUE(RankRuns());
  SendStop(absl::ZeroDuration());
  EXPECT_TRUE(WaitForRank(0, IsExited).exit().stopped_by_worker());
}

TEST_F(ConflictTest, OlderStoreIsNotObeyed) {
  StartJob();
  Replace("a", 19);
  WaitForHealth("[-]cluster failed: it has seen commit 20");
  SendStop(absl::ZeroDuration());
  Replace("a", 25);
  WaitForHealth("[+]cluster ok");
  EXPECT_TRUE(RankRuns());
}

TEST_F(ConflictTest, SuccessorKnowsTheCluster) {
  StartJob();
  agent_.reset();
  coordinator_->SetCluster("b", 90);
  StartAgent();
  WaitForHealth("[-]cluster failed: its ranks belong to cluster a");
  WaitForText("/metrics", kRankRuns);  // its shim has reported to the successor
  SendStop(absl::ZeroDuration());
  EXPECT_TRUE(RankRuns());
}

TEST_F(ConflictTest, EndsWithTheLastRank) {
  StartJob();
  Replace("b", 90);
  WaitForHealth("[-]cluster failed");
  Unblock("go");
  WaitForHealth("[+]cluster ok");
  EXPECT_EQ(WaitForRank(0, IsExited).exit().exit_code(), 0) << "as part of the new Hello";
}

TEST_F(ConflictTest, SendsRecordsAndJoinsOnRequest) {
  StartJob();
  Replace("b", 90);
  WaitForHealth("[-]cluster failed");
  v1::CoordinatorMessage request;
  request.mutable_send_job_records();
  coordinator_->Send(request);
  v1::WorkerMessage answer;
  ASSERT_TRUE(coordinator_->WaitFor(
      [](const v1::WorkerMessage& message) { return message.has_job_records(); }, &answer));
  const v1::JobRecords& records = answer.job_records();
  EXPECT_TRUE(records.last());
  ASSERT_EQ(records.launches_size(), 1);
  EXPECT_EQ(records.launches(0).job_id(), kJob);
  EXPECT_EQ(records.launches(0).spec().command(2), "cat " + Path("go"));
  ASSERT_EQ(records.reports_size(), 1);
  EXPECT_EQ(records.reports(0).ranks(0).phase(), v1::STARTED);

  const int sessions = coordinator_->sessions();
  v1::CoordinatorMessage join;
  join.mutable_join_cluster()->set_cluster_id("b");
  join.mutable_join_cluster()->set_commit_index(91);
  coordinator_->SetCluster("b", 91, "s2");
  coordinator_->Send(join);
  ASSERT_TRUE(coordinator_->WaitForSessions(sessions + 1));
  EXPECT_EQ(coordinator_->hello().cluster_id(), "b");
  EXPECT_EQ(coordinator_->hello().coordinator_start(), "s2");
  WaitForHealth("[+]cluster ok");
  EXPECT_TRUE(RankRuns());
}

TEST_F(ConflictTest, IdleWorkerForgetsItsCluster) {
  coordinator_->SetCluster("a", 20);
  StartBoth();
  ASSERT_TRUE(coordinator_->WaitFor([](const v1::WorkerMessage& m) { return m.has_heartbeat(); }));
  Replace("b", 1);
  EXPECT_EQ(coordinator_->hello().cluster_id(), "");
  WaitForHealth("[+]cluster ok");
}

TEST_F(ConflictTest, RefusedVersionDoesNotEndWorkerWithRanks) {
  StartJob();
  coordinator_->Refuse(static_cast<int>(absl::StatusCode::kFailedPrecondition),
                       "the worker uses protocol 9");
  coordinator_->BreakSession();
  ASSERT_TRUE(coordinator_->WaitForSessions(3));
  WaitForHealth("[-]cluster failed: the worker uses protocol 9");
  EXPECT_FALSE(refused_.HasBeenNotified());
  coordinator_->Refuse(0, "");
  WaitForHealth("[+]cluster ok");
}

// A restored coordinator may reuse the number of a generation that this worker holds.
TEST_F(ConflictTest, LateLaunchIsRefusedAloud) {
  StartBoth();
  coordinator_->Send(Launch("exec sleep 600", 1, /*generation=*/5));
  WaitForRank(0, IsStarted, 5);
  coordinator_->Send(Launch("true", 1, /*generation=*/4));
  const v1::RankReport refused = WaitForRank(0, IsExited, 4);
  EXPECT_THAT(refused.exit().failure().message(), HasSubstr("already holds generation 5"));
  coordinator_->Send(Launch("exec sleep 600", 1, /*generation=*/5));
  v1::CoordinatorMessage other = Launch("true", 2, /*generation=*/5);
  coordinator_->Send(other);
  EXPECT_THAT(WaitForRank(1, IsExited, 5).exit().failure().message(),
              HasSubstr("cannot launch generation 5"));
}

}  // namespace
}  // namespace muster::agent
