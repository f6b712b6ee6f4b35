// Notices about waits: they name the missing ranks two seconds after a wait began, then every five
// seconds, and when the wait times out.
#include "absl/strings/str_cat.h"
#include "common/time/proto_time.h"
#include "coordinator/core/reasons.h"
#include "coordinator/core/testing/harness.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::core {
namespace {

using ::testing::ElementsAre;
using testing::Harness;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::MakeSpec;
using ::testing::Not;
using ::testing::SizeIs;
using Message = v1::CoordinatorMessage;

const std::vector<std::string> kNodes = {"a", "b"};

class Waits : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const std::string& node : kNodes) cluster_.Join(node, 2);
    job_ = cluster_.Submit(MakeSpec(2, 2));
  }

  void ReportProgress(const std::string& node, uint32_t rank, const std::string& phase,
                      uint64_t files = 0) {
    v1::RankReport report = Harness::MakeReport(rank, v1::STARTED);
    report.mutable_progress()->set_phase(phase);
    if (files > 0) {
      report.mutable_progress()->set_phase_progress(files);
      report.mutable_progress()->set_phase_unit("files indexed");
    }
    v1::WorkerMessage message;
    *message.mutable_heartbeat()->add_progress() = cluster_.MakeInventory(job_, {report});
    cluster_.SendMessage(node, message);
  }

  std::vector<v1::WaitNotice> NoticesTo(const Effects& effects, const std::string& node) const {
    std::vector<v1::WaitNotice> notices;
    for (const Send& send : effects.sends) {
      if (send.session == cluster_.session(node) && send.message.has_wait_notice()) {
        notices.push_back(send.message.wait_notice());
      }
    }
    return notices;
  }

  static std::vector<uint32_t> Missing(const v1::Wait& wait) {
    std::vector<uint32_t> ranks;
    for (const v1::WaitedFor& missing : wait.missing()) ranks.push_back(missing.rank());
    return ranks;
  }

  Harness cluster_;
  std::string job_;
};

TEST_F(Waits, ReportsRendezvousAfterTwoSecondsThenEveryFive) {
  cluster_.ReportPhaseOfAll(job_, v1::STARTED);
  for (const auto& [rank, node] : {std::pair(0, "a"), std::pair(1, "a"), std::pair(3, "b")}) {
    cluster_.ReportPhase(node, job_, rank, v1::JOINED);
  }
  EXPECT_THAT(cluster_.Run(absl::Milliseconds(1500), kNodes).logs, IsEmpty());
  const Effects first = cluster_.Run(absl::Milliseconds(500), kNodes);
  for (const std::string& node : kNodes) {
    ASSERT_THAT(NoticesTo(first, node), SizeIs(1));
    const v1::WaitNotice notice = NoticesTo(first, node)[0];
    EXPECT_EQ(notice.job_id(), job_);
    EXPECT_EQ(notice.generation(), 1u);
    EXPECT_FALSE(notice.timed_out());
    EXPECT_EQ(notice.wait().what(), "rendezvous");
    EXPECT_EQ(FromProto(notice.wait().since()), absl::Seconds(2));
    ASSERT_THAT(Missing(notice.wait()), ElementsAre(2));
    EXPECT_EQ(notice.wait().missing(0).node(), "b");
    EXPECT_EQ(notice.wait().missing(0).reason(), "phase STARTED, pid 1002, last seen 2.0 s ago");
  }
  EXPECT_THAT(first.logs,
              ElementsAre(absl::StrCat("job ", job_,
                                       " generation 1: rendezvous has waited 2.0 s for "
                                       "rank 2 (node b, phase STARTED, pid 1002, last seen 2.0 s "
                                       "ago)")));
  EXPECT_THAT(cluster_.Run(absl::Milliseconds(4500), kNodes).logs, IsEmpty());
  EXPECT_THAT(NoticesTo(cluster_.Run(absl::Milliseconds(500), kNodes), "a"), SizeIs(1));
  EXPECT_THAT(NoticesTo(cluster_.Run(absl::Seconds(10), kNodes), "b"), SizeIs(2));
}

TEST_F(Waits, TimeoutNoticeIsLastAndPrecedesStop) {
  cluster_.ReportPhaseOfAll(job_, v1::STARTED);
  for (const auto& [rank, node] : {std::pair(0, "a"), std::pair(1, "a"), std::pair(3, "b")}) {
    cluster_.ReportPhase(node, job_, rank, v1::JOINED);
  }
  cluster_.Run(absl::Milliseconds(59'500), kNodes);
  const Effects last = cluster_.Run(absl::Milliseconds(500), kNodes);
  std::vector<Message::KindCase> kinds;
  for (const Send& send : last.sends) {
    if (send.session == cluster_.session("b")) kinds.push_back(send.message.kind_case());
  }
  ASSERT_THAT(kinds, ElementsAre(Message::kWaitNotice, Message::kStop));
  EXPECT_TRUE(NoticesTo(last, "b")[0].timed_out());
  EXPECT_EQ(cluster_.State(job_), v1::STOPPING);
  const v1::FirstFailure failure = cluster_.Get(job_).first_failure();
  EXPECT_EQ(failure.reason(), reasons::kRendezvousTimedOut);
  EXPECT_EQ(failure.node(), "b");
  EXPECT_EQ(
      failure.message(),
      "rendezvous timed out after 60.0 s, waiting for rank 2 (node b, phase STARTED, pid 1002, "
      "last seen 60.0 s ago)");
  EXPECT_EQ(cluster_.Get(job_).message(), failure.message());
  EXPECT_THAT(last.logs, ElementsAre(HasSubstr(failure.message())));
  EXPECT_THAT(NoticesTo(cluster_.Run(absl::Seconds(20), kNodes), "a"), IsEmpty())
      << "a stopping job waits for no arrivals";
}

// Cold data on a slow file system: two ranks index it for ten minutes, far longer than the phase
// may last without progress.
TEST_F(Waits, PhaseLastsAsLongAsRanksReportProgress) {
  cluster_.ReportPhaseOfAll(job_, v1::STARTED);
  for (const uint32_t rank : {0, 1}) cluster_.ReportPhase("a", job_, rank, v1::JOINED);
  uint64_t files = 0;
  for (int i = 0; i < 20; ++i) {
    files += 1000;
    for (const uint32_t rank : {2, 3}) ReportProgress("b", rank, "loading-data", files);
    cluster_.Run(absl::Seconds(30), kNodes);
  }
  ASSERT_EQ(cluster_.State(job_), v1::STARTING);
  EXPECT_EQ(cluster_.Get(job_).waits(0).missing(0).reason(),
            "phase STARTED (loading-data: 20,000 files indexed), pid 1002, last seen 30.0 s ago");

  // Rank 3 stops to work, but still reports: it is named when it has made no progress for 60 s.
  for (int i = 0; i < 15 && cluster_.State(job_) == v1::STARTING; ++i) {
    ReportProgress("b", 2, "loading-data", ++files);
    ReportProgress("b", 3, "loading-data", 20'000);
    cluster_.Run(absl::Seconds(3), kNodes);
  }
  EXPECT_EQ(cluster_.State(job_), v1::STOPPING);
  const v1::FirstFailure failure = cluster_.Get(job_).first_failure();
  EXPECT_EQ(failure.reason(), reasons::kRendezvousTimedOut);
  EXPECT_EQ(failure.rank(), 3u);
  EXPECT_THAT(failure.message(), HasSubstr("no progress for 60.0 s"));
  EXPECT_THAT(failure.message(), Not(HasSubstr("rank 2")));
}

// Heartbeats of a node, and the reconnection of its worker, are no signs of life of its ranks.
TEST_F(Waits, DistinguishesSilentRankFromItsNeighbor) {
  cluster_.ReportPhaseOfAll(job_, v1::STARTED);
  for (int second = 0; second < 20; ++second) {
    cluster_.Run(absl::Seconds(1), kNodes);
    ReportProgress("b", 3, "loading-data");
  }
  const auto reason = [this](int index) {
    return cluster_.Get(job_).waits(0).missing(index).reason();
  };
  EXPECT_EQ(reason(2), "phase STARTED, pid 1002, last seen 20.0 s ago");
  EXPECT_EQ(reason(3),
            "phase STARTED (loading-data), pid 1003, last seen 0.0 s ago, no progress for 19.0 s");

  cluster_.CloseStream("b");
  v1::Hello hello = cluster_.MakeHello("b", 2);
  *hello.add_inventory() = cluster_.MakeInventory(
      job_, {Harness::MakeReport(2, v1::STARTED), Harness::MakeReport(3, v1::STARTED)});
  cluster_.Open(hello);
  EXPECT_EQ(reason(2), "phase STARTED, pid 1002, last seen 20.0 s ago");
  EXPECT_EQ(FromProto(cluster_.Get(job_).ranks(2).last_seen()), absl::Seconds(20));
}

// The worker of node rank 0 reports what clients of the job's hosted c10d store wait for.
TEST_F(Waits, NameRanksThatHostedStoreWaitsFor) {
  for (const char* node : {"c", "d"}) cluster_.Join(node, 1);
  const std::string job = cluster_.Submit(testing::MakeCommandSpec(2, 1));
  cluster_.ReportPhaseOfAll(job, v1::STARTED);
  const auto report = [&](const std::string& node, const std::vector<v1::StoreWait>& waits) {
    v1::WorkerMessage message;
    *message.mutable_report() = cluster_.MakeInventory(job, {});
    message.mutable_report()->mutable_store_waits();
    for (const v1::StoreWait& wait : waits) {
      *message.mutable_report()->mutable_store_waits()->add_waits() = wait;
    }
    return cluster_.SendMessage(node, message);
  };
  v1::StoreWait key;
  key.set_what("c10d key \"a\" (awaited by rank 0)");
  *key.mutable_since() = ToProto(absl::Seconds(1));
  key.add_missing(1);
  key.add_missing(2);  // not a rank of this job
  v1::StoreWait unknown;
  unknown.set_what("c10d key \"b\" (awaited by rank 1)");
  unknown.set_reason("any rank to set it");
  const std::string first = cluster_.Get(job).ranks(0).node();
  const std::string second = first == "c" ? "d" : "c";
  report(second, {key});
  EXPECT_THAT(cluster_.Get(job).waits(), IsEmpty()) << "it does not host the store";
  report(first, {key, unknown});
  const v1::Job view = cluster_.Get(job);
  ASSERT_THAT(view.waits(), SizeIs(2));
  EXPECT_EQ(view.waits(0).what(), key.what());
  EXPECT_EQ(FromProto(view.waits(0).since()), absl::Seconds(1));
  EXPECT_THAT(Missing(view.waits(0)), ElementsAre(1));
  EXPECT_EQ(view.waits(0).missing(0).node(), second);
  ASSERT_THAT(view.waits(1).missing(), SizeIs(1));
  EXPECT_EQ(view.waits(1).missing(0).reason(), "any rank to set it");

  const Effects effects = cluster_.Run(absl::Seconds(2), {"a", "b", "c", "d"});
  std::vector<std::string> noticed;
  for (const v1::WaitNotice& notice : NoticesTo(effects, second)) {
    if (notice.job_id() == job) noticed.push_back(notice.wait().what());
  }
  EXPECT_THAT(noticed, ElementsAre(key.what(), unknown.what()));

  report(first, {unknown});
  EXPECT_THAT(cluster_.Get(job).waits(), SizeIs(1));
  report(first, {});
  EXPECT_THAT(cluster_.Get(job).waits(), IsEmpty());
}

TEST_F(Waits, ShowTheMemoryOfRanks) {
  v1::RankReport report = Harness::MakeReport(2, v1::STARTED);
  report.set_memory_bytes(5 << 20);
  cluster_.Report("b", job_, report);
  EXPECT_EQ(cluster_.Get(job_).ranks(2).memory_bytes(), 5u << 20);
  // A report without it keeps it.
  cluster_.ReportPhase("b", job_, 2, v1::JOINED);
  EXPECT_EQ(cluster_.Get(job_).ranks(2).memory_bytes(), 5u << 20);
  EXPECT_EQ(cluster_.Get(job_).ranks(3).memory_bytes(), 0u);
}

TEST_F(Waits, NamesCommunicatorSetup) {
  cluster_.ReportPhaseOfAll(job_, v1::STARTED);
  cluster_.ReportPhaseOfAll(job_, v1::JOINED);
  for (const uint32_t rank : {0, 1}) cluster_.ReportPhase("a", job_, rank, v1::CONNECTED);
  const Effects effects = cluster_.Run(absl::Seconds(2), kNodes);
  ASSERT_THAT(NoticesTo(effects, "a"), SizeIs(1));
  EXPECT_EQ(NoticesTo(effects, "a")[0].wait().what(), "communicators");
  EXPECT_THAT(Missing(NoticesTo(effects, "a")[0].wait()), ElementsAre(2, 3));
}

TEST_F(Waits, BarrierNamesRanksThatHaveNotArrived) {
  cluster_.BringUp(job_);
  cluster_.Run(absl::Seconds(30), kNodes);
  cluster_.Arrive("a", job_, {0, 1});
  cluster_.Arrive("b", job_, {3});
  cluster_.Arrive("a", job_, {0}, 1, "mine");
  const Effects effects = cluster_.Run(absl::Seconds(2), kNodes);
  const std::vector<v1::WaitNotice> notices = NoticesTo(effects, "b");
  ASSERT_THAT(notices, SizeIs(2));
  EXPECT_EQ(notices[0].wait().what(), "barrier mine/1");
  EXPECT_THAT(Missing(notices[0].wait()), ElementsAre(1, 2, 3));
  EXPECT_EQ(notices[1].wait().what(), "barrier world/1");
  EXPECT_THAT(Missing(notices[1].wait()), ElementsAre(2));
  EXPECT_THAT(notices[1].wait().missing(0).reason(), HasSubstr("last seen 32.0 s ago"));
  EXPECT_THAT(notices[0].wait().missing(2).reason(), HasSubstr("last seen 2.0 s ago"));

  cluster_.Arrive("b", job_, {2, 3});
  EXPECT_THAT(NoticesTo(cluster_.Run(absl::Seconds(5), kNodes), "a"), SizeIs(1))
      << "for this node's ranks only";
  cluster_.Arrive("a", job_, {1}, 1, "mine");
  cluster_.Arrive("b", job_, {2, 3}, 1, "mine");
  EXPECT_THAT(cluster_.Run(absl::Seconds(20), kNodes).logs, IsEmpty());
}

TEST_F(Waits, DoesNotReportQuickBarriers) {
  cluster_.BringUp(job_);
  for (uint64_t sequence = 1; sequence <= 20; ++sequence) {
    cluster_.Arrive("a", job_, {0, 1}, sequence);
    EXPECT_THAT(cluster_.Run(absl::Seconds(1), kNodes).logs, IsEmpty());
    cluster_.Arrive("b", job_, {2, 3}, sequence);
  }
}

TEST_F(Waits, MetricsOmitBarrierNumber) {
  cluster_.BringUp(job_);
  EXPECT_THAT(cluster_.core().ListWaits(), IsEmpty());
  cluster_.Arrive("a", job_, {0}, 8);
  cluster_.Advance(absl::Seconds(3));
  cluster_.Arrive("a", job_, {0, 1}, 9);
  const std::vector<LiveWait> waits = cluster_.core().ListWaits();
  ASSERT_THAT(waits, SizeIs(1));
  EXPECT_EQ(waits[0].job, JobId(job_));
  EXPECT_EQ(waits[0].what, "barrier world");
  EXPECT_EQ(waits[0].missing, 3u) << "of the oldest barrier";
  EXPECT_EQ(cluster_.now().steady - waits[0].since, absl::Seconds(3));
  for (int i = 0; i < 100; ++i) cluster_.Arrive("a", job_, {0}, 1, absl::StrCat("group-", i));
  EXPECT_THAT(cluster_.core().ListWaits(), SizeIs(17)) << "the number of groups is up to users";
  EXPECT_THAT(NoticesTo(cluster_.Run(absl::Seconds(1), kNodes), "a"), SizeIs(1));
  EXPECT_THAT(NoticesTo(cluster_.Run(absl::Seconds(1), kNodes), "a"), SizeIs(8)) << "the oldest";
}

TEST_F(Waits, ContinueAfterCoordinatorRestart) {
  cluster_.ReportPhaseOfAll(job_, v1::STARTED);
  cluster_.Restart();
  for (const auto& [node, first] : {std::pair("a", 0u), std::pair("b", 2u)}) {
    v1::Hello hello = cluster_.MakeHello(node, 2);
    *hello.add_inventory() = cluster_.MakeInventory(
        job_, {Harness::MakeReport(first, v1::JOINED),
               Harness::MakeReport(first + 1, first == 0 ? v1::JOINED : v1::STARTED)});
    cluster_.Open(hello);
  }
  const Effects effects = cluster_.Run(absl::Seconds(2), kNodes);
  ASSERT_THAT(NoticesTo(effects, "a"), SizeIs(1));
  EXPECT_THAT(Missing(NoticesTo(effects, "a")[0].wait()), ElementsAre(3));
}

TEST(LargeWaits, ShowWorstRanksAndCountOthers) {
  Harness cluster;
  std::vector<std::string> nodes;
  for (int i = 0; i < 10; ++i) {
    nodes.push_back(absl::StrCat("node-", i));
    cluster.Join(nodes.back(), 8);
  }
  const std::string job = cluster.Submit(MakeSpec(10, 8));
  // All ranks run except those of the last node; its two last ranks have been silent longest.
  v1::GenerationReport report;
  for (int node = 0; node < 9; ++node) {
    std::vector<v1::RankReport> ranks;
    for (uint32_t rank = 8 * node; rank < 8 * node + 8u; ++rank) {
      ranks.push_back(Harness::MakeReport(rank, v1::STARTED));
    }
    v1::WorkerMessage message;
    *message.mutable_report() = cluster.MakeInventory(job, std::move(ranks));
    cluster.SendMessage(nodes[node], message);
  }
  const Effects effects = cluster.Run(absl::Seconds(2), nodes);
  const Message* notice =
      testing::FindSent(effects, cluster.session("node-0"), Message::kWaitNotice);
  ASSERT_NE(notice, nullptr);
  const v1::Wait& wait = notice->wait_notice().wait();
  EXPECT_EQ(wait.missing_size(), 8) << "the ranks of the last node, whose start was not reported";
  EXPECT_EQ(wait.missing(0).rank(), 72u);

  for (uint32_t rank = 72; rank < 80; ++rank) cluster.ReportPhase("node-9", job, rank, v1::STARTED);
  const Effects joining = cluster.Run(absl::Seconds(2), nodes);
  notice = testing::FindSent(joining, cluster.session("node-0"), Message::kWaitNotice);
  ASSERT_NE(notice, nullptr);
  const v1::Wait& all = notice->wait_notice().wait();
  ASSERT_EQ(all.missing_size(), 33);
  EXPECT_EQ(all.missing(0).rank(), 0u) << "longest silent";
  EXPECT_EQ(all.missing(32).reason(), "and 48 more");
  EXPECT_EQ(cluster.Get(job).waits(0).missing_size(), 80) << "queries return all missing ranks";
}

}  // namespace
}  // namespace muster::core
