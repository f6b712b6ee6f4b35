// The identity of the store, and workers whose ranks belong to another one.
#include <csignal>

#include "common/version.h"
#include "coordinator/core/reasons.h"
#include "coordinator/core/records.h"
#include "coordinator/core/testing/harness.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::core {
namespace {

using testing::CountSent;
using testing::ExitWith;
using testing::FindSent;
using testing::Harness;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::KilledBy;
using testing::MakeCommandSpec;
using testing::MakeSpec;
using Message = v1::CoordinatorMessage;

v1::GenerationReport ReportOf(const std::string& job, uint64_t generation, v1::RankPhase phase) {
  v1::GenerationReport report;
  report.set_job_id(job);
  report.set_generation(generation);
  *report.add_ranks() = Harness::MakeReport(0, phase);
  return report;
}

// A worker of `cluster_id` that has seen `commit_index` and holds one generation.
v1::Hello Holding(const Harness& cluster, const std::string& node, v1::GenerationReport report,
                  const std::string& cluster_id, uint64_t commit_index = 0) {
  v1::Hello hello = cluster.MakeHello(node, 1);
  hello.set_cluster_id(cluster_id);
  hello.set_commit_index(commit_index);
  *hello.add_inventory() = std::move(report);
  return hello;
}

// Returns the kinds of messages that the steps sent, other than Welcome and acknowledgements.
int CountOrders(const Effects& effects) {
  int count = 0;
  for (const Send& send : effects.sends) {
    count += !send.message.has_welcome() && !send.message.has_heartbeat_ack();
  }
  return count;
}

TEST(StoreIdentity, NewStoreGetsIdThatItKeeps) {
  Harness cluster;
  EXPECT_EQ(cluster.core().store().cluster_id, "cluster-1");
  Options options = Harness::DefaultOptions();
  options.new_cluster_id = "cluster-2";
  std::vector<store::Record> records;
  for (const auto& [key, value] : cluster.records()) records.push_back({key, value});
  Core again(options);
  const absl::StatusOr<Effects> loaded = again.Load(records, cluster.now());
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(again.store().cluster_id, "cluster-1");
}

TEST(StoreIdentity, EveryStartIsRecordedWithItsFirstCommit) {
  Harness cluster;
  cluster.Submit(MakeSpec(1));
  cluster.Restart();
  cluster.Submit(MakeSpec(1));
  cluster.Restart();
  const std::vector<CoordinatorStart>& starts = cluster.core().store().starts;
  ASSERT_EQ(starts.size(), 3u);
  EXPECT_EQ(starts[0].first_commit, 1u);
  EXPECT_EQ(starts[1].first_commit, 3u) << "after the job's";
  EXPECT_EQ(starts[2].first_commit, 5u);
  EXPECT_NE(starts[0].id, starts[1].id);
  EXPECT_EQ(cluster.core().store().commit_index, 5u);
}

TEST(StoreIdentity, EveryCommitRaisesTheIndex) {
  Harness cluster;
  cluster.Join("a");
  const uint64_t before = cluster.core().store().commit_index;
  const std::string job = cluster.Submit(MakeSpec(1));
  EXPECT_EQ(cluster.core().store().commit_index, before + 1);
  EXPECT_EQ(cluster.SendHeartbeat("a").writes.size(), 0u);
  EXPECT_EQ(cluster.core().store().commit_index, before + 1) << "nothing was written";
  v1::CommitRecord commit;
  ASSERT_TRUE(commit.ParseFromString(cluster.records().at(kCommitKey)));
  EXPECT_EQ(commit.index(), before + 1);
  cluster.Restart();
  EXPECT_EQ(cluster.core().store().commit_index, before + 2) << "the start";
}

TEST(StoreIdentity, WelcomeAndAcknowledgementsCarryIt) {
  Harness cluster;
  cluster.Submit(MakeSpec(2));
  const uint64_t index = cluster.core().store().commit_index;
  const Effects joined = cluster.Join("a");
  const Message* const welcome = FindSent(joined, cluster.session("a"), Message::kWelcome);
  ASSERT_NE(welcome, nullptr);
  EXPECT_EQ(welcome->welcome().cluster_id(), "cluster-1");
  EXPECT_EQ(welcome->welcome().commit_index(), index);
  EXPECT_EQ(welcome->welcome().coordinator_start(), cluster.core().store().starts.back().id);
  EXPECT_THAT(welcome->welcome().conflict(), IsEmpty());
  const Effects beat = cluster.SendHeartbeat("a");
  const Message* const ack = FindSent(beat, cluster.session("a"), Message::kHeartbeatAck);
  ASSERT_NE(ack, nullptr);
  EXPECT_EQ(ack->heartbeat_ack().commit_index(), cluster.core().store().commit_index);
}

// Fault 2: a coordinator with an empty store killed every running rank at the first Hello.
TEST(Conflict, EmptyStoreLeavesRanksAlone) {
  Harness cluster;
  const Effects opened = cluster.Open(
      Holding(cluster, "a", ReportOf("lost", 3, v1::CONNECTED), "cluster-0", /*commit_index=*/40));
  EXPECT_EQ(CountOrders(opened), 0);
  const Message* const welcome = FindSent(opened, cluster.session("a"), Message::kWelcome);
  ASSERT_NE(welcome, nullptr);
  EXPECT_THAT(welcome->welcome().conflict(), HasSubstr("belong to cluster cluster-0"));
  EXPECT_THAT(cluster.GetNode("a").conflict(), HasSubstr("belong to cluster cluster-0"));
  EXPECT_THAT(opened.logs, ::testing::Contains(HasSubstr("muster admin recover a")));
}

TEST(Conflict, OfWorkerWithoutIdentityNeedsUnknownJob) {
  Harness cluster;
  const Effects opened =
      cluster.Open(Holding(cluster, "a", ReportOf("lost", 3, v1::STARTED), /*cluster_id=*/""));
  EXPECT_EQ(CountOrders(opened), 0);
  EXPECT_THAT(cluster.GetNode("a").conflict(), HasSubstr("it runs job lost"));
  cluster.Join("b");
  const std::string job = cluster.Submit(MakeSpec(1));
  cluster.Open(Holding(cluster, "b", ReportOf(job, 1, v1::STARTED), /*cluster_id=*/""));
  EXPECT_THAT(cluster.GetNode("b").conflict(), IsEmpty());
}

TEST(Conflict, NeedsLiveRank) {
  Harness cluster;
  v1::GenerationReport ended = ReportOf("lost", 3, v1::EXITED);
  const Effects opened = cluster.Open(Holding(cluster, "a", ended, "cluster-0"));
  EXPECT_THAT(cluster.GetNode("a").conflict(), IsEmpty());
  EXPECT_EQ(CountSent(opened, cluster.session("a"), Message::kForget), 1);
}

TEST(Conflict, RanksThatOnlyTheStoreForgotAreStopped) {
  Harness cluster;
  const Effects opened =
      cluster.Open(Holding(cluster, "a", ReportOf("removed", 3, v1::STARTED), "cluster-1"));
  const Message* const stop = FindSent(opened, cluster.session("a"), Message::kStop);
  ASSERT_NE(stop, nullptr);
  EXPECT_FALSE(stop->stop().has_grace_period()) << "the worker knows the job's";
}

// The store was restored from a copy in which the job has just been placed.
TEST(Conflict, JobIsNotLaunchedOnSlotsOfUnknownRanks) {
  Harness cluster;
  cluster.Join("a");
  const std::string job = cluster.Submit(MakeSpec(1));
  cluster.CloseStream("a");
  v1::GenerationReport unknown = ReportOf("removed", 3, v1::STARTED);
  const Effects opened = cluster.Open(Holding(cluster, "a", unknown, "cluster-1"));
  EXPECT_EQ(CountSent(opened, cluster.session("a"), Message::kStop), 1);
  EXPECT_EQ(CountSent(opened, cluster.session("a"), Message::kLaunch), 0);
  EXPECT_EQ(cluster.State(job), v1::QUEUED);
  v1::WorkerMessage report;
  *report.mutable_report() = ReportOf("removed", 3, v1::EXITED);
  const Effects ended = cluster.SendMessage("a", report);
  EXPECT_EQ(CountSent(ended, cluster.session("a"), Message::kLaunch), 1);
  EXPECT_EQ(cluster.Get(job).generation(), 2u);
  EXPECT_EQ(cluster.Get(job).restarts(), 0u);
}

TEST(Conflict, NodeGetsNoRanksAndReportsReason) {
  Harness cluster;
  cluster.Open(Holding(cluster, "a", ReportOf("lost", 3, v1::STARTED), "cluster-0"));
  const std::string job = cluster.Submit(MakeSpec(1));
  EXPECT_EQ(cluster.State(job), v1::QUEUED);
  std::string blockers;
  const v1::Job queued = cluster.Get(job);
  for (const v1::WaitedFor& blocker : queued.waits(0).missing()) {
    blockers += blocker.node() + " " + blocker.reason() + "\n";
  }
  EXPECT_THAT(blockers, HasSubstr("a in conflict: its ranks belong to cluster cluster-0"));
  cluster.Join("b");
  EXPECT_EQ(cluster.State(job), v1::STARTING);
  EXPECT_EQ(cluster.Get(job).ranks(0).node(), "b");
}

TEST(Conflict, KeepsLeaseAndSendsOnlyHeartbeats) {
  Harness cluster;
  cluster.Open(Holding(cluster, "a", ReportOf("lost", 3, v1::STARTED), "cluster-0"));
  v1::WorkerMessage report;
  *report.mutable_report() = ReportOf("lost", 3, v1::EXITED);
  EXPECT_EQ(CountOrders(cluster.SendMessage("a", report)), 0);
  EXPECT_EQ(CountOrders(cluster.Run(absl::Seconds(30), {"a"})), 0);
  EXPECT_EQ(cluster.StateOf("a"), v1::READY);
}

TEST(Conflict, EndsWhenTheWorkerHasNoRanks) {
  Harness cluster;
  cluster.Open(Holding(cluster, "a", ReportOf("lost", 3, v1::STARTED), "cluster-0"));
  const std::string job = cluster.Submit(MakeSpec(1));
  cluster.CloseStream("a");
  cluster.Join("a");
  EXPECT_THAT(cluster.GetNode("a").conflict(), IsEmpty());
  EXPECT_EQ(cluster.State(job), v1::STARTING);
}

// A store restored from a copy: the job has reached generation 2 since the copy was made.
class RestoredStore : public ::testing::Test {
 protected:
  RestoredStore() {
    cluster_.Join("a");
    job_ = cluster_.Submit(MakeCommandSpec(1));
    copy_ = cluster_.records();
    cluster_.ReportPhaseOfAll(job_, v1::STARTED);
    EXPECT_TRUE(cluster_.Requeue(job_).ok());
    cluster_.ExitAll(job_, KilledBy(SIGTERM));
    EXPECT_EQ(cluster_.Get(job_).generation(), 2u);
    index_ = cluster_.core().store().commit_index;
    start_ = cluster_.core().store().starts.back().id;
    for (const auto& [key, value] : std::map(cluster_.records())) cluster_.EraseRecord(key);
    for (const auto& [key, value] : copy_) cluster_.PutRecord(key, value);
    cluster_.Restart();
    EXPECT_EQ(cluster_.Get(job_).generation(), 1u);
  }

  v1::Hello Returning(v1::RankPhase phase) {
    v1::Hello hello = Holding(cluster_, "a", ReportOf(job_, 2, phase), "cluster-1", index_);
    hello.set_coordinator_start(start_);
    return hello;
  }
  // Makes the restored store commit more than the worker has seen.
  void CatchUp() {
    while (cluster_.core().store().commit_index <= index_) cluster_.Submit(MakeSpec(9));
  }

  Harness cluster_;
  std::string job_;
  std::map<std::string, std::string> copy_;
  uint64_t index_ = 0;  // commit index of the lost store
  std::string start_;   // start of its coordinator
};

TEST_F(RestoredStore, LeavesRanksAlone) {
  const Effects opened = cluster_.Open(Returning(v1::STARTED));
  EXPECT_EQ(CountOrders(opened), 0);
  EXPECT_THAT(cluster_.GetNode("a").conflict(), HasSubstr("the store was restored from a copy"));
  EXPECT_EQ(CountOrders(cluster_.Run(absl::Seconds(40), {"a"})), 0);
  EXPECT_NE(cluster_.State(job_), v1::FAILED);
}

// The copy was made while the coordinator ran whose later commits the worker has seen.
TEST_F(RestoredStore, IsRecognizedAfterItHasCaughtUp) {
  CatchUp();
  const Effects opened = cluster_.Open(Returning(v1::STARTED));
  EXPECT_EQ(CountOrders(opened), 0);
  EXPECT_THAT(
      cluster_.GetNode("a").conflict(),
      ::testing::AllOf(
          HasSubstr(absl::StrCat("it has seen commit ", index_, " of coordinator start ", start_)),
          HasSubstr("has the commits up to"), HasSubstr("the store was restored from a copy")));
}

// The copy is older than the coordinator whose commits the worker has seen.
TEST_F(RestoredStore, IsRecognizedByMissingStart) {
  CatchUp();
  start_ = "b7";
  EXPECT_EQ(CountOrders(cluster_.Open(Returning(v1::STARTED))), 0);
  EXPECT_THAT(cluster_.GetNode("a").conflict(),
              HasSubstr("of coordinator start b7, of which this coordinator's store has none"));
}

TEST_F(RestoredStore, ObeysCommitsThatTheCopyHas) {
  index_ = cluster_.core().store().LastCommitOf(start_);
  ASSERT_GT(index_, 0u);
  cluster_.Open(Returning(v1::STARTED));
  EXPECT_THAT(cluster_.GetNode("a").conflict(), IsEmpty());
}

// Its worker is of an earlier build, which reports no start.
TEST_F(RestoredStore, IsJudgedByTheIndexAloneWithoutAStart) {
  start_.clear();
  cluster_.Open(Returning(v1::STARTED));
  EXPECT_THAT(cluster_.GetNode("a").conflict(),
              HasSubstr("but this coordinator's store is at commit"));
  cluster_.CloseStream("a");
  CatchUp();
  cluster_.Open(Returning(v1::STARTED));
  EXPECT_THAT(cluster_.GetNode("a").conflict(), IsEmpty());
}

// Answers reach the worker through peers, which may belong to this store.
TEST_F(RestoredStore, AnswersAboutLeasesNameTheLastCommitOfTheStart) {
  CatchUp();
  cluster_.Join("b");
  v1::WorkerMessage message;
  v1::LeaseQuestion& question = *message.mutable_lease_question();
  question.set_node_name("a");
  question.add_generations()->set_job_id(job_);
  const auto answered_index = [&] {
    const Effects effects = cluster_.SendMessage("b", message);
    return FindSent(effects, cluster_.session("b"), Message::kLeaseAnswer)
        ->lease_answer()
        .commit_index();
  };
  EXPECT_EQ(answered_index(), cluster_.core().store().commit_index) << "an earlier build";
  question.set_coordinator_start(start_);
  EXPECT_LT(answered_index(), index_) << "so that the worker ignores it";
  question.set_coordinator_start("b7");
  EXPECT_EQ(answered_index(), 0u);
}

TEST_F(RestoredStore, RaisesGenerationsAboveReportedOnes) {
  cluster_.Open(Returning(v1::EXITED));
  cluster_.Run(absl::Seconds(1), {"a"});
  cluster_.Restart();
  cluster_.Join("a", 1, /*incarnation=*/2);
  EXPECT_EQ(cluster_.State(job_), v1::STARTING);
  EXPECT_EQ(cluster_.Get(job_).generation(), 3u) << "2 is used up";
}

// A worker in conflict cannot report which barriers an ended rank of a known job has passed.
TEST(Conflict, BarriersWaitForItsEnd) {
  Harness cluster;
  cluster.Join("a");
  cluster.Join("b");
  const std::string job = cluster.Submit(MakeSpec(2));
  cluster.BringUp(job);
  cluster.ReportExit("b", job, 1, ExitWith(0));
  cluster.ForgetPassedBarriers(job, 1);
  cluster.Restart();
  v1::Hello a = cluster.MakeHello("a", 1);
  *a.add_inventory() = cluster.MakeInventory(job, {Harness::MakeReport(0, v1::CONNECTED)});
  v1::Hello b = Holding(cluster, "b", ReportOf("unknown", 1, v1::STARTED), "cluster-1",
                        /*commit_index=*/1000);
  v1::GenerationReport& ended = *b.add_inventory();
  ended = cluster.MakeInventory(job, {Harness::MakeReport(1, v1::EXITED)});
  ended.add_passed_barriers()->set_group("world");
  ended.mutable_passed_barriers(0)->set_sequence(3);
  cluster.Open(b);
  EXPECT_THAT(cluster.GetNode("b").conflict(), HasSubstr("it has seen commit 1000"));
  cluster.Open(a);
  const Effects waits = cluster.Arrive("a", job, {0}, /*sequence=*/3);
  EXPECT_EQ(CountSent(waits, cluster.session("a"), Message::kReleaseBarrier), 0);
  // The conflict ends with the rank of the unknown job.
  b.mutable_inventory(0)->mutable_ranks(0)->set_phase(v1::EXITED);
  cluster.CloseStream("b");
  const Effects opened = cluster.Open(b);
  EXPECT_THAT(cluster.GetNode("b").conflict(), IsEmpty());
  const Message* const release = FindSent(opened, cluster.session("a"), Message::kReleaseBarrier);
  ASSERT_NE(release, nullptr);
  EXPECT_EQ(release->release_barrier().code(), 0) << release->release_barrier().message();
}

// The restored store gave the number to another generation before this worker connected.
TEST(Conflict, ExitRecordsOfReusedNumberAreForgotten) {
  Harness cluster;
  cluster.Join("a");
  const std::string job = cluster.Submit(MakeSpec(1));
  EXPECT_EQ(cluster.Get(job).ranks(0).node(), "a");
  const Effects opened = cluster.Open(
      Holding(cluster, "b", ReportOf(job, 1, v1::EXITED), cluster.core().store().cluster_id));
  EXPECT_EQ(CountSent(opened, cluster.session("b"), Message::kForget), 1);
  EXPECT_EQ(cluster.State(job), v1::STARTING);
}

// ------------------------------------------------------------------------------------------------
// machines

v1::Hello OnMachine(const Harness& cluster, const std::string& machine, uint64_t incarnation) {
  v1::Hello hello = cluster.MakeHello("a", 1, incarnation);
  hello.set_machine_id(machine);
  return hello;
}

absl::Status Refusal(const Effects& effects) {
  return effects.closes.empty() ? absl::OkStatus() : effects.closes.front().status;
}

// Fault 13: a machine with the same name entered while the stream of the healthy one was broken.
TEST(MachineId, OtherMachineCannotTakeNameDuringLease) {
  Harness cluster;
  cluster.Open(OnMachine(cluster, "m1", 1));
  const std::string job = cluster.Submit(MakeSpec(1));
  cluster.BringUp(job);
  cluster.CloseStream("a");
  const absl::Status refused = Refusal(cluster.Open(OnMachine(cluster, "m2", 2)));
  EXPECT_EQ(refused.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("belongs to machine m1"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("runs on machine m2"));
  v1::Hello back = OnMachine(cluster, "m1", 1);
  *back.add_inventory() = cluster.MakeInventory(job, {Harness::MakeReport(0, v1::CONNECTED)});
  EXPECT_TRUE(Refusal(cluster.Open(back)).ok());
  EXPECT_EQ(cluster.State(job), v1::RUNNING);
  EXPECT_EQ(cluster.Get(job).generation(), 1u);
}

// A worker of protocol version 1 does not report its machine: its successor must have its ranks.
TEST(MachineId, UnknownMachineKeepsNameOfItsRanks) {
  Harness cluster;
  cluster.Open(OnMachine(cluster, "", 1));
  const std::string job = cluster.Submit(MakeSpec(1));
  cluster.BringUp(job);
  cluster.CloseStream("a");
  const absl::Status refused = Refusal(cluster.Open(OnMachine(cluster, "m2", 2)));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("belongs to an unknown machine"));
  EXPECT_EQ(cluster.State(job), v1::RUNNING);
  v1::Hello upgraded = OnMachine(cluster, "m1", 3);
  *upgraded.add_inventory() = cluster.MakeInventory(job, {Harness::MakeReport(0, v1::CONNECTED)});
  EXPECT_TRUE(Refusal(cluster.Open(upgraded)).ok());
  EXPECT_EQ(cluster.GetNode("a").machine_id(), "m1");
}

TEST(MachineId, OtherMachineCanTakeNameAfterLease) {
  Harness cluster;
  cluster.Open(OnMachine(cluster, "m1", 1));
  cluster.CloseStream("a");
  cluster.Run(absl::Seconds(11));
  EXPECT_TRUE(Refusal(cluster.Open(OnMachine(cluster, "m2", 2))).ok());
  EXPECT_EQ(cluster.GetNode("a").machine_id(), "m2");
}

TEST(MachineId, SameMachineReplacesItsWorkerAtOnce) {
  Harness cluster;
  cluster.Open(OnMachine(cluster, "m1", 1));
  cluster.CloseStream("a");
  EXPECT_TRUE(Refusal(cluster.Open(OnMachine(cluster, "m1", 2))).ok());
  EXPECT_EQ(Refusal(cluster.Open(OnMachine(cluster, "m1", 3))).code(),
            absl::StatusCode::kAlreadyExists)
      << "its worker is alive";
}

TEST(MachineId, IsKeptThroughRestart) {
  Harness cluster;
  cluster.Open(OnMachine(cluster, "m1", 1));
  const std::string job = cluster.Submit(MakeSpec(1));
  cluster.BringUp(job);
  cluster.Restart();
  EXPECT_EQ(Refusal(cluster.Open(OnMachine(cluster, "m2", 2))).code(),
            absl::StatusCode::kAlreadyExists);
}

TEST(MachineId, OfIdleNodeIsKeptThroughRestart) {
  Harness cluster;
  cluster.Open(OnMachine(cluster, "m1", 1));
  cluster.Restart();
  EXPECT_EQ(cluster.StateOf("a"), v1::SUSPECT);
  EXPECT_EQ(Refusal(cluster.Open(OnMachine(cluster, "m2", 2))).code(),
            absl::StatusCode::kAlreadyExists);
  cluster.Run(absl::Seconds(11));
  EXPECT_EQ(cluster.StateOf("a"), v1::LOST);
  EXPECT_TRUE(Refusal(cluster.Open(OnMachine(cluster, "m2", 2))).ok());
}

}  // namespace
}  // namespace muster::core
