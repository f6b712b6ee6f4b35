// Ends of conflicts: jobs rebuilt from the records of workers, and ranks that are discarded.
#include "common/time/proto_time.h"
#include "coordinator/core/reasons.h"
#include "coordinator/core/records.h"
#include "coordinator/core/testing/harness.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::core {
namespace {

using testing::CountSent;
using ::testing::ElementsAre;
using testing::ExitWith;
using testing::FindSent;
using testing::Harness;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::KilledBy;
using testing::MakeCommandSpec;
using Message = v1::CoordinatorMessage;

// Two nodes of a cluster whose coordinator has lost its store. They run job "lost", generation 3,
// one rank each.
class Takeover : public ::testing::Test {
 protected:
  v1::Hello HelloOf(const std::string& node) const {
    v1::Hello hello = cluster_.MakeHello(node, 1);
    hello.set_cluster_id(cluster_id_.at(node));
    hello.set_commit_index(index_.at(node));
    hello.set_newest_protocol_version(2);
    for (const v1::GenerationReport& report : records_.at(node).reports()) {
      *hello.add_inventory() = report;
    }
    return hello;
  }

  // Adds a worker that runs one rank of the generation.
  void AddWorker(const std::string& node, uint32_t node_rank, uint32_t node_count,
                 const std::string& job = "lost", uint64_t generation = 3) {
    v1::JobRecords& records = records_[node];
    v1::Launch& launch = *records.add_launches();
    launch.set_job_id(job);
    launch.set_generation(generation);
    *launch.mutable_spec() = MakeCommandSpec(node_count);
    launch.set_owner("alice");
    launch.set_world_size(node_count);
    launch.set_node_rank(node_rank);
    launch.set_node_count(node_count);
    launch.set_restarts(2);
    launch.add_ranks()->set_rank(node_rank);
    launch.mutable_ranks(0)->add_slots(0);
    v1::GenerationReport& report = *records.add_reports();
    report.set_job_id(job);
    report.set_generation(generation);
    *report.add_ranks() = Harness::MakeReport(node_rank, v1::STARTED);
    records.set_last(true);
    cluster_id_[node] = "cluster-0";
    index_[node] = 40;
  }
  void Connect(const std::string& node) { cluster_.Open(HelloOf(node)); }
  Effects Answer(const std::string& node) {
    v1::WorkerMessage message;
    *message.mutable_job_records() = records_.at(node);
    return cluster_.SendMessage(node, message);
  }
  // Reconnects, as a worker does that receives JoinCluster.
  Effects Join(const std::string& node, const Effects& effects) {
    const Message* const join = FindSent(effects, cluster_.session(node), Message::kJoinCluster);
    EXPECT_NE(join, nullptr) << node;
    if (join == nullptr) return {};
    cluster_id_[node] = join->join_cluster().cluster_id();
    index_[node] = join->join_cluster().commit_index();
    return cluster_.Open(HelloOf(node));
  }
  Effects Recover(std::vector<NodeName> nodes = {}, bool discard = false) {
    return cluster_.Step(RecoverJobs{RequestId(900), std::move(nodes), discard, {"root", true}});
  }
  static const Reply* ReplyIn(const Effects& effects) {
    return effects.replies.empty() ? nullptr : &effects.replies.front();
  }

  Harness cluster_;
  std::map<std::string, v1::JobRecords> records_;
  std::map<std::string, std::string> cluster_id_;
  std::map<std::string, uint64_t> index_;
};

TEST_F(Takeover, ReportsRecordsThatTheServiceDropped) {
  AddWorker("a", 0, 1);
  Connect("a");
  Recover();
  v1::WorkerMessage message;
  message.mutable_job_records()->set_last(true);
  const Corrections corrections = {
      {"job_records.launches", "job_records.launches of job lost has an invalid spec"}};
  const Effects done =
      cluster_.Step(SessionMessage{cluster_.session("a"), std::move(message), corrections});
  ASSERT_NE(ReplyIn(done), nullptr);
  EXPECT_THAT(ReplyIn(done)->recovered.problems(),
              ElementsAre(HasSubstr("node a: job_records.launches of job lost has an invalid")));
}

TEST_F(Takeover, GenerationOfAllNodesContinues) {
  AddWorker("a", 0, 2);
  AddWorker("b", 1, 2);
  Connect("a");
  Connect("b");
  const Effects asked = Recover();
  EXPECT_EQ(CountSent(asked, cluster_.session("a"), Message::kSendJobRecords), 1);
  EXPECT_EQ(CountSent(asked, cluster_.session("b"), Message::kSendJobRecords), 1);
  EXPECT_EQ(ReplyIn(Answer("a")), nullptr);
  const Effects done = Answer("b");
  ASSERT_NE(ReplyIn(done), nullptr);
  EXPECT_THAT(ReplyIn(done)->recovered.job_ids(), ElementsAre("lost"));
  EXPECT_THAT(ReplyIn(done)->recovered.nodes(), ElementsAre("a", "b"));
  EXPECT_THAT(ReplyIn(done)->recovered.problems(), IsEmpty());
  for (const std::string node : {"a", "b"}) {
    const Effects joined = Join(node, done);
    EXPECT_EQ(CountSent(joined, cluster_.session(node), Message::kStop), 0);
    EXPECT_EQ(CountSent(joined, cluster_.session(node), Message::kForget), 0);
    EXPECT_THAT(cluster_.GetNode(node).conflict(), IsEmpty());
    EXPECT_EQ(cluster_.GetNode(node).slots(0).job_id(), "lost");
  }
  const v1::Job job = cluster_.Get("lost");
  EXPECT_EQ(job.state(), v1::RUNNING);
  EXPECT_EQ(job.generation(), 3u);
  EXPECT_EQ(job.restarts(), 2u);
  EXPECT_EQ(job.owner(), "alice");
  EXPECT_FALSE(job.has_first_failure());
  cluster_.Run(absl::Minutes(2), {"a", "b"});
  cluster_.ExitAll("lost", ExitWith(0));
  EXPECT_EQ(cluster_.State("lost"), v1::SUCCEEDED);
}

TEST_F(Takeover, GenerationWithoutAllNodesIsQueuedAgain) {
  AddWorker("a", 0, 2);
  Connect("a");
  Recover({NodeName("a")});
  const Effects done = Answer("a");
  ASSERT_NE(ReplyIn(done), nullptr);
  EXPECT_THAT(ReplyIn(done)->recovered.job_ids(), ElementsAre("lost"));
  EXPECT_EQ(cluster_.State("lost"), v1::QUEUED);
  EXPECT_EQ(cluster_.Get("lost").reason(), reasons::kRecovered);
  EXPECT_THAT(cluster_.Get("lost").message(), HasSubstr("has ranks on 2 nodes"));
  const Effects joined = Join("a", done);
  EXPECT_EQ(CountSent(joined, cluster_.session("a"), Message::kStop), 1);
  v1::WorkerMessage exit;
  *exit.mutable_report() = records_["a"].reports(0);
  *exit.mutable_report()->mutable_ranks(0) = Harness::MakeReport(0, v1::EXITED);
  cluster_.SendMessage("a", exit);
  cluster_.Join("c");
  EXPECT_EQ(cluster_.State("lost"), v1::STARTING);
  EXPECT_GT(cluster_.Get("lost").generation(), 1000u)
      << "the lost store may be found, and give the numbers after 3 to other generations";
}

// Each of two stores recovers the generation while the other is not there.
TEST_F(Takeover, StoresContinueWithDifferentNumbers) {
  AddWorker("a", 0, 2);
  std::set<uint64_t> numbers;
  for (const uint64_t incarnation : {100, 200}) {
    Options options = Harness::DefaultOptions();
    options.incarnation = Incarnation(incarnation);
    cluster_ = Harness(options);
    Connect("a");
    Recover();
    Answer("a");
    cluster_.Join("c");
    cluster_.Join("d");
    ASSERT_EQ(cluster_.State("lost"), v1::STARTING);
    numbers.insert(cluster_.Get("lost").generation());
  }
  EXPECT_EQ(numbers.size(), 2u);
}

TEST_F(Takeover, SilentWorkerIsNamed) {
  AddWorker("a", 0, 1);
  AddWorker("b", 0, 1, "other", 1);
  Connect("a");
  Connect("b");
  Recover();
  Answer("a");
  cluster_.SendHeartbeat("b");
  const Effects done = cluster_.TickAtDeadline();
  ASSERT_NE(ReplyIn(done), nullptr);
  EXPECT_THAT(ReplyIn(done)->recovered.job_ids(), ElementsAre("lost"));
  EXPECT_THAT(ReplyIn(done)->recovered.problems(), ElementsAre(HasSubstr("node b did not answer")));
  EXPECT_FALSE(cluster_.GetNode("b").conflict().empty());
}

TEST_F(Takeover, ExitedRanksAreRecorded) {
  AddWorker("a", 0, 1);
  AddWorker("a", 0, 1, "running", 1);
  *records_["a"].mutable_reports(0)->mutable_ranks(0) = Harness::MakeReport(0, v1::EXITED);
  *records_["a"].mutable_reports(0)->mutable_ranks(0)->mutable_exit() = ExitWith(0);
  Connect("a");
  Recover();
  Join("a", Answer("a"));
  EXPECT_EQ(cluster_.State("lost"), v1::SUCCEEDED);
  EXPECT_EQ(cluster_.State("running"), v1::RUNNING);
}

TEST_F(Takeover, LostJoinClusterIsRepeated) {
  AddWorker("a", 0, 1);
  Connect("a");
  Recover();
  Answer("a");
  cluster_.CloseStream("a");
  const Effects again = cluster_.Open(HelloOf("a"));
  Join("a", again);
  EXPECT_EQ(cluster_.State("lost"), v1::RUNNING);
}

TEST_F(Takeover, SurvivesRestartOfTheCoordinator) {
  AddWorker("a", 0, 1);
  Connect("a");
  Recover();
  const Effects done = Answer("a");
  cluster_.Restart();
  EXPECT_EQ(cluster_.State("lost"), v1::STARTING);
  const Message* join = nullptr;
  for (const Send& send : done.sends) {
    if (send.message.has_join_cluster()) join = &send.message;
  }
  ASSERT_NE(join, nullptr);
  cluster_id_["a"] = join->join_cluster().cluster_id();
  index_["a"] = join->join_cluster().commit_index();
  Connect("a");
  EXPECT_THAT(cluster_.GetNode("a").conflict(), IsEmpty());
  EXPECT_EQ(cluster_.State("lost"), v1::RUNNING);
}

// The store was restored from a copy in which the job was at an earlier generation.
TEST_F(Takeover, NewerGenerationReplacesTheRecordedOne) {
  cluster_.Join("a");
  const std::string job = cluster_.Submit(MakeCommandSpec(1));
  cluster_.BringUp(job);
  cluster_.CloseStream("a");
  AddWorker("a", 0, 1, job, 5);
  cluster_id_["a"] = cluster_.core().store().cluster_id;
  index_["a"] = cluster_.core().store().commit_index + 10;
  Connect("a");
  EXPECT_EQ(cluster_.Get(job).generation(), 1u);
  Recover();
  Join("a", Answer("a"));
  EXPECT_EQ(cluster_.Get(job).generation(), 5u);
  EXPECT_EQ(cluster_.State(job), v1::RUNNING);
  EXPECT_FALSE(cluster_.Get(job).has_first_failure());
}

// Since the copy was made, the job that it has on the node ended, and another took its slot.
TEST_F(Takeover, RecordedRankGivesItsSlotToTheRunningOne) {
  cluster_.Join("a");
  const std::string ended = cluster_.Submit(MakeCommandSpec(1));
  cluster_.BringUp(ended);
  cluster_.CloseStream("a");
  AddWorker("a", 0, 1);
  cluster_id_["a"] = cluster_.core().store().cluster_id;
  index_["a"] = cluster_.core().store().commit_index + 10;
  Connect("a");
  Recover();
  const Effects done = Answer("a");
  cluster_.Restart();
  EXPECT_EQ(cluster_.State("lost"), v1::STARTING);
  EXPECT_EQ(cluster_.State(ended), v1::QUEUED);
  EXPECT_FALSE(done.sends.empty());
}

// The same, but the worker still has the exit record.
TEST_F(Takeover, ExitOfRecordedRankCounts) {
  cluster_.Join("a");
  const std::string ended = cluster_.Submit(MakeCommandSpec(1));
  cluster_.BringUp(ended);
  cluster_.CloseStream("a");
  AddWorker("a", 0, 1, ended, 1);
  *records_["a"].mutable_reports(0)->mutable_ranks(0) = Harness::MakeReport(0, v1::EXITED);
  *records_["a"].mutable_reports(0)->mutable_ranks(0)->mutable_exit() = ExitWith(0);
  AddWorker("a", 0, 1);
  cluster_id_["a"] = cluster_.core().store().cluster_id;
  index_["a"] = cluster_.core().store().commit_index + 10;
  Connect("a");
  Recover();
  Answer("a");
  EXPECT_EQ(cluster_.State(ended), v1::SUCCEEDED);
  EXPECT_EQ(cluster_.State("lost"), v1::STARTING);
}

// The older generation had been abandoned on a node that was lost; there, it still runs.
TEST_F(Takeover, RankOfReplacedGenerationKeepsItsSlotUntilItEnds) {
  cluster_.Join("a");
  const std::string job = cluster_.Submit(MakeCommandSpec(1));
  cluster_.BringUp(job);
  AddWorker("b", 0, 1, job, 5);
  cluster_id_["b"] = cluster_.core().store().cluster_id;
  index_["b"] = cluster_.core().store().commit_index + 10;
  Connect("b");
  Recover();
  const Effects done = Answer("b");
  EXPECT_EQ(CountSent(done, cluster_.session("a"), Message::kStop), 1);
  EXPECT_EQ(CountSent(done, cluster_.session("a"), Message::kForget), 0);
  EXPECT_EQ(cluster_.Get(job).generation(), 5u);
  EXPECT_EQ(cluster_.GetNode("a").slots(0).job_id(), job);
  v1::WorkerMessage exit;
  exit.mutable_report()->set_job_id(job);
  exit.mutable_report()->set_generation(1);
  *exit.mutable_report()->add_ranks() = Harness::MakeReport(0, v1::EXITED);
  const Effects ended = cluster_.SendMessage("a", exit);
  EXPECT_EQ(CountSent(ended, cluster_.session("a"), Message::kForget), 1);
  EXPECT_EQ(cluster_.GetNode("a").slots(0).job_id(), "");
}

TEST_F(Takeover, RecordsOfWorkerThatReconnectedAreIgnored) {
  AddWorker("a", 0, 1);
  AddWorker("b", 0, 1, "other", 1);
  Connect("a");
  Connect("b");
  Recover();
  Answer("a");
  cluster_.CloseStream("a");
  cluster_.Join("a");
  const std::string job = cluster_.Submit(MakeCommandSpec(1));
  EXPECT_EQ(cluster_.Get(job).ranks(0).node(), "a");
  const Effects done = Answer("b");
  ASSERT_NE(ReplyIn(done), nullptr);
  EXPECT_THAT(ReplyIn(done)->recovered.nodes(), ElementsAre("b"));
  EXPECT_EQ(cluster_.State(job), v1::STARTING);
  EXPECT_EQ(cluster_.Get(job).generation(), 1u);
}

TEST_F(Takeover, QueuedJobIsNotPlacedTwice) {
  const std::string job = cluster_.Submit(MakeCommandSpec(1));
  AddWorker("a", 0, 1, job, 2);
  cluster_id_["a"] = cluster_.core().store().cluster_id;
  index_["a"] = cluster_.core().store().commit_index + 10;
  Connect("a");
  Recover();
  const Effects done = Answer("a");
  cluster_.Join("b");
  EXPECT_EQ(CountSent(Join("a", done), cluster_.session("b"), Message::kLaunch), 0);
  EXPECT_EQ(cluster_.Get(job).ranks(0).node(), "a");
  EXPECT_EQ(cluster_.Get(job).generation(), 2u);
}

// The store was restored from a copy in which the job still waited for another one.
class DependentTakeover : public Takeover {
 protected:
  // Takes over generation 1 of `train_`, which depends on `prep_`, from node "a". With a
  // `node_count` of 2, the generation is incomplete and the job is queued again.
  void TakeOverTrain(bool held, uint32_t node_count = 1) {
    cluster_ = Harness();
    records_.clear();
    cluster_.Join("n");
    v1::JobSpec prep = MakeCommandSpec(1);
    prep.mutable_restart()->set_max(0);
    prep_ = cluster_.Submit(prep);
    v1::JobSpec train = MakeCommandSpec(1);
    train.mutable_after()->add_ok(prep_);
    train_ = cluster_.Submit(train);
    EXPECT_EQ(cluster_.Get(train_).reason(), "Dependency");
    if (held) EXPECT_TRUE(cluster_.Hold(train_).ok());
    AddWorker("a", 0, node_count, train_, 1);
    cluster_id_["a"] = cluster_.core().store().cluster_id;
    index_["a"] = cluster_.core().store().commit_index + 10;
    Connect("a");
    Recover();
    const Effects done = Answer("a");
    const Message* const join = FindSent(done, cluster_.session("a"), Message::kJoinCluster);
    ASSERT_NE(join, nullptr);
    index_["a"] = join->join_cluster().commit_index();
  }
  // Ends `prep_`, in each of the ways in which a job can end.
  void EndPrep(v1::JobState end, bool forget) {
    cluster_.BringUp(prep_);
    if (end == v1::CANCELLED) EXPECT_TRUE(cluster_.Cancel(prep_).ok());
    cluster_.ExitAll(prep_, ExitWith(end == v1::SUCCEEDED ? 0 : 3));
    EXPECT_EQ(cluster_.State(prep_), end);
    if (forget) cluster_.Step(RemoveJob{RequestId(901), prep_, {"root", true}});
    EXPECT_EQ(cluster_.core().ResolveJob(prep_).ok(), !forget);
  }
  void CheckRestart() {
    const v1::JobState before = cluster_.State(train_);
    cluster_.Restart();
    EXPECT_EQ(cluster_.State(train_), before);
  }

  std::string prep_, train_;
};

TEST_F(DependentTakeover, EndOfTheDependencyDoesNotConcernTheJobThatRuns) {
  for (const v1::JobState end : {v1::SUCCEEDED, v1::FAILED, v1::CANCELLED}) {
    for (const v1::JobState state : {v1::STARTING, v1::RUNNING, v1::STOPPING}) {
      for (const bool held : {false, true}) {
        for (const bool forget : {false, true}) {
          SCOPED_TRACE(::testing::Message()
                       << v1::JobState_Name(end) << " while " << v1::JobState_Name(state)
                       << " held " << held << " forget " << forget);
          TakeOverTrain(held);
          if (state != v1::STARTING) Connect("a");
          if (state == v1::STOPPING) ASSERT_TRUE(cluster_.Requeue(train_).ok());
          ASSERT_EQ(cluster_.State(train_), state);
          EndPrep(end, forget);
          EXPECT_EQ(cluster_.State(train_), state);
          CheckRestart();
          cluster_.Join("n");
          Connect("a");
          const bool requeued = state == v1::STOPPING;
          cluster_.ExitAll(train_, requeued ? KilledBy(15) : ExitWith(0));
          EXPECT_EQ(cluster_.State(train_), requeued ? v1::STARTING : v1::SUCCEEDED);
        }
      }
    }
  }
}

TEST_F(DependentTakeover, JobThatIsQueuedAgainHasNoDependency) {
  for (const v1::JobState end : {v1::SUCCEEDED, v1::FAILED, v1::CANCELLED}) {
    SCOPED_TRACE(v1::JobState_Name(end));
    TakeOverTrain(/*held=*/false, /*node_count=*/2);
    EXPECT_EQ(cluster_.Get(train_).reason(), reasons::kWaitingForResources);
    EndPrep(end, /*forget=*/false);
    EXPECT_EQ(cluster_.State(train_), v1::STARTING);
    CheckRestart();
    TakeOverTrain(/*held=*/true, /*node_count=*/2);
    EndPrep(end, /*forget=*/false);
    EXPECT_EQ(cluster_.State(train_), v1::HELD);
    CheckRestart();
  }
}

TEST_F(DependentTakeover, DependenciesInRecordsOfEarlierBuildsAreDropped) {
  TakeOverTrain(/*held=*/false);
  Connect("a");
  v1::JobRecord record;
  ASSERT_TRUE(record.ParseFromString(cluster_.records().at(JobKey(train_))));
  record.add_after_ok(prep_);
  cluster_.PutRecord(JobKey(train_), record.SerializeAsString());
  cluster_.Restart();
  cluster_.Join("n");
  EndPrep(v1::FAILED, /*forget=*/false);
  EXPECT_EQ(cluster_.State(train_), v1::RUNNING);
}

TEST_F(Takeover, DiscardedRanksAreStopped) {
  AddWorker("a", 0, 1);
  Connect("a");
  const Effects done = Recover({NodeName("a")}, /*discard=*/true);
  ASSERT_NE(ReplyIn(done), nullptr);
  EXPECT_THAT(ReplyIn(done)->recovered.nodes(), ElementsAre("a"));
  const Effects joined = Join("a", done);
  EXPECT_EQ(CountSent(joined, cluster_.session("a"), Message::kStop), 1);
  EXPECT_FALSE(cluster_.core().GetJob(JobId("lost"), false, cluster_.now()).ok());
}

TEST_F(Takeover, WorkerOfVersion1CanOnlyBeDiscarded) {
  AddWorker("a", 0, 1);
  const auto hello = [this] {
    v1::Hello v1_hello = HelloOf("a");
    v1_hello.clear_newest_protocol_version();
    v1_hello.set_protocol_version(1);
    v1_hello.clear_cluster_id();
    v1_hello.clear_commit_index();
    return v1_hello;
  };
  cluster_.Open(hello());
  const Effects refused = Recover();
  ASSERT_NE(ReplyIn(refused), nullptr);
  EXPECT_THAT(ReplyIn(refused)->recovered.problems(), ElementsAre(HasSubstr("cannot send")));
  const Effects done = Recover({NodeName("a")}, /*discard=*/true);
  EXPECT_EQ(done.closes.size(), 1u) << "so that it reconnects";
  const Effects back = cluster_.Open(hello());
  EXPECT_EQ(CountSent(back, cluster_.session("a"), Message::kStop), 1);
}

TEST_F(Takeover, RejectsWrongNodes) {
  cluster_.Join("fine");
  const auto code = [](const Effects& effects) { return ReplyIn(effects)->job.status().code(); };
  EXPECT_EQ(code(Recover({NodeName("none")})), absl::StatusCode::kNotFound);
  EXPECT_EQ(code(Recover({NodeName("fine")})), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(code(Recover({}, /*discard=*/true)), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(Recover()), absl::StatusCode::kOk) << "there is nothing to recover";
}

}  // namespace
}  // namespace muster::core
