// Hangs: detection after hang_timeout of silence, inspection, the end of a hang, and on_hang.
#include <map>

#include "absl/strings/str_cat.h"
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
using testing::FindSent;
using testing::Harness;
using ::testing::HasSubstr;
using testing::MakeCommandSpec;
using ::testing::Not;
using Message = v1::CoordinatorMessage;

const std::vector<std::string> kNodes = {"a", "b"};
constexpr absl::Duration kTimeout = absl::Seconds(60);

// A command job with ranks 0 and 1 on node a, 2 and 3 on node b.
class Hangs : public ::testing::Test {
 protected:
  void Begin(const std::string& on_hang = "report", absl::Duration timeout = kTimeout) {
    for (const std::string& node : kNodes) cluster_.Join(node, 2);
    v1::JobSpec spec = MakeCommandSpec(2, 2);
    *spec.mutable_hang_timeout() = ToProto(timeout);
    spec.set_on_hang(on_hang);
    job_ = cluster_.Submit(spec);
    cluster_.ReportPhaseOfAll(job_, v1::STARTED);
    ASSERT_EQ(cluster_.State(job_), v1::RUNNING);
  }

  static std::string NodeOf(uint32_t rank) { return kNodes[rank / 2]; }

  Effects ReportSilence(uint32_t rank, absl::Duration silence) {
    v1::RankReport report = Harness::MakeReport(rank, v1::STARTED);
    *report.mutable_silence() = ToProto(silence);
    return cluster_.Report(NodeOf(rank), job_, report);
  }
  void ReportSilenceOfAll(absl::Duration silence) {
    for (uint32_t rank = 0; rank < 4; ++rank) ReportSilence(rank, silence);
  }

  Effects ReportInspection(uint32_t rank, const std::string& state, const std::string& waits_in) {
    v1::WorkerMessage message;
    v1::InspectionReport& report = *message.mutable_inspection();
    report.set_job_id(job_);
    report.set_generation(cluster_.Get(job_).generation());
    v1::RankInspection& inspection = *report.add_ranks();
    inspection.set_rank(rank);
    inspection.set_state(state);
    inspection.set_waits_in(waits_in);
    return cluster_.SendMessage(NodeOf(rank), message);
  }
  // Rank 2 sleeps.
  void InspectAll() {
    for (uint32_t rank = 0; rank < 4; ++rank) {
      ReportInspection(rank, "sleeping", rank == 2 ? "sleep" : "futex");
    }
    cluster_.TickAtDeadline();
  }
  void Hang() {
    ReportSilenceOfAll(absl::Seconds(15));
    cluster_.Run(absl::Seconds(45), kNodes);
    InspectAll();
  }
  // Seconds by cause.
  std::map<std::string, double> Seconds() const {
    std::map<std::string, double> seconds;
    const v1::Goodput goodput = cluster_.Get(job_).goodput();
    for (const v1::Goodput::Cause& cause : goodput.causes()) {
      seconds[cause.cause()] = absl::ToDoubleSeconds(FromProto(cause.wall_time()));
    }
    return seconds;
  }
  int CountEvents(const std::string& type) const {
    const std::vector<std::string> types = cluster_.EventTypes(job_);
    return static_cast<int>(std::count(types.begin(), types.end(), type));
  }
  bool SentInspect(const Effects& effects) const {
    return CountSent(effects, cluster_.session("a"), Message::kInspect) == 1 &&
           CountSent(effects, cluster_.session("b"), Message::kInspect) == 1;
  }

  Harness cluster_;
  std::string job_;
};

TEST_F(Hangs, AreInspectedAfterExactlyHangTimeout) {
  Begin();
  ReportSilenceOfAll(absl::Seconds(15));
  EXPECT_FALSE(SentInspect(cluster_.Run(absl::Milliseconds(44'500), kNodes)));
  EXPECT_TRUE(SentInspect(cluster_.Run(absl::Milliseconds(500), kNodes)));
  EXPECT_EQ(CountEvents(events::kJobHung), 0);
  InspectAll();
  const v1::Job job = cluster_.Get(job_);
  EXPECT_EQ(job.state(), v1::RUNNING);
  EXPECT_EQ(job.hang().generation(), 1u);
  EXPECT_EQ(FromProto(job.hang().silence()), kTimeout);
  EXPECT_EQ(job.hang().suspect_rank(), 2u);
  EXPECT_EQ(job.hang().node(), "b");
  EXPECT_THAT(job.hang().message(), HasSubstr("rank 2 on b sleeps"));
  ASSERT_EQ(job.hang().ranks_size(), 4);
  EXPECT_EQ(job.hang().ranks(2).waits_in(), "sleep");
  EXPECT_EQ(CountEvents(events::kJobHung), 1);
  EXPECT_THAT(cluster_.core().ListEvents(JobId(job_), 0)->back().message(),
              HasSubstr("no rank had output, progress or file input and output for 1m: rank 2 on "
                        "b sleeps"));
  EXPECT_EQ(testing::TotalOf(cluster_.core().TakeStats(), "muster_job_hangs_total"), 1);
  // The inspections are only in GetJob.
  EXPECT_EQ(cluster_.core().ListJobs({}, cluster_.now())[0].hang().suspect_rank(), 2u);
  EXPECT_EQ(cluster_.core().ListJobs({}, cluster_.now())[0].hang().ranks_size(), 0);
}

TEST_F(Hangs, AreLostTime) {
  for (const std::string on_hang : {"report", "restart"}) {
    cluster_ = Harness();
    Begin(on_hang);
    cluster_.Run(absl::Seconds(100), kNodes);
    const auto productive = [this] {
      return testing::TotalOf(cluster_.core().TakeStats(), "muster_job_slot_seconds_total",
                              {"productive"}) /
             4;
    };
    EXPECT_EQ(productive(), 100);
    ReportSilenceOfAll(absl::ZeroDuration());
    cluster_.Run(absl::Seconds(15), kNodes);
    EXPECT_EQ(productive(), 115);
    Hang();
    EXPECT_EQ(productive(), 115) << "a counter does not decrease";
    EXPECT_EQ(Seconds().at("productive"), 100);
    EXPECT_GE(Seconds().at("hung"), 60);
    const double hung = Seconds().at("hung");
    if (on_hang == "restart") {
      EXPECT_EQ(cluster_.State(job_), v1::STOPPING);
      continue;
    }
    cluster_.Run(absl::Seconds(30), kNodes);
    EXPECT_EQ(Seconds().at("hung"), hung + 30);
    EXPECT_EQ(cluster_.Get(job_).goodput().current_cause(), "hung");
    ReportSilence(1, absl::ZeroDuration());
    cluster_.Run(absl::Seconds(10), kNodes);
    EXPECT_EQ(Seconds().at("hung"), hung + 30);
    EXPECT_EQ(Seconds().at("productive"), 110);
  }
}

TEST_F(Hangs, CountFromTheLastActivityOfAnyRank) {
  Begin();
  ReportSilenceOfAll(absl::Seconds(15));
  cluster_.Run(absl::Seconds(40), kNodes);
  ReportSilence(3, absl::ZeroDuration());
  cluster_.Run(absl::Seconds(20), kNodes);
  ReportSilence(3, absl::Seconds(20));
  EXPECT_FALSE(SentInspect(cluster_.Run(absl::Milliseconds(39'500), kNodes)));
  EXPECT_TRUE(SentInspect(cluster_.Run(absl::Milliseconds(500), kNodes)));
}

TEST_F(Hangs, AreNotReportedWhileOneRankIsActive) {
  Begin();
  for (const uint32_t rank : {0, 1, 2}) ReportSilence(rank, absl::Seconds(15));
  cluster_.Run(absl::Minutes(10), kNodes);
  EXPECT_EQ(CountEvents(events::kJobHung), 0);
  EXPECT_FALSE(cluster_.Get(job_).has_hang());
}

TEST_F(Hangs, ExcludeExitedRanks) {
  Begin();
  for (const uint32_t rank : {0, 1, 2}) ReportSilence(rank, absl::Seconds(15));
  cluster_.Run(absl::Seconds(30), kNodes);
  cluster_.ReportExit("b", job_, 3, testing::ExitWith(0));
  EXPECT_TRUE(SentInspect(cluster_.Run(absl::Seconds(15), kNodes)));
}

TEST_F(Hangs, NeverHappenWithoutTimeout) {
  Begin("report", absl::ZeroDuration());
  ReportSilenceOfAll(absl::Seconds(15));
  EXPECT_FALSE(SentInspect(cluster_.Run(absl::Minutes(30), kNodes)));
}

TEST_F(Hangs, EndWithActivity) {
  Begin();
  Hang();
  ReportSilence(1, absl::ZeroDuration());
  EXPECT_FALSE(cluster_.Get(job_).has_hang());
  EXPECT_EQ(CountEvents(events::kHangEnded), 1);
  // Another hang is another event.
  ReportSilence(1, absl::Seconds(15));
  cluster_.Run(absl::Seconds(45), kNodes);
  InspectAll();
  EXPECT_EQ(CountEvents(events::kJobHung), 2);
}

TEST_F(Hangs, ActivityDuringInspectionPreventsTheEvent) {
  Begin();
  ReportSilenceOfAll(absl::Seconds(15));
  cluster_.Run(absl::Seconds(45), kNodes);
  ReportSilence(0, absl::ZeroDuration());
  cluster_.Run(absl::Seconds(30), kNodes);
  EXPECT_EQ(CountEvents(events::kJobHung), 0);
  EXPECT_EQ(CountEvents(events::kHangEnded), 0);
}

TEST_F(Hangs, SuspectNodeWithoutAnswerAfterFourSeconds) {
  Begin();
  ReportSilenceOfAll(absl::Seconds(15));
  cluster_.Run(absl::Seconds(45), kNodes);
  for (const uint32_t rank : {0, 1, 2}) ReportInspection(rank, "sleeping", "futex");
  cluster_.Run(absl::Milliseconds(3'500), kNodes);
  EXPECT_FALSE(cluster_.Get(job_).has_hang());
  cluster_.Run(absl::Milliseconds(500), kNodes);
  EXPECT_EQ(cluster_.Get(job_).hang().suspect_rank(), 3u);
  EXPECT_THAT(cluster_.Get(job_).hang().message(), HasSubstr("its node did not answer"));
}

TEST_F(Hangs, IgnoreInspectionsOfRanksOnOtherNodes) {
  Begin();
  ReportSilenceOfAll(absl::Seconds(15));
  cluster_.Run(absl::Seconds(45), kNodes);
  v1::WorkerMessage message;
  message.mutable_inspection()->set_job_id(job_);
  message.mutable_inspection()->set_generation(1);
  message.mutable_inspection()->add_ranks()->set_rank(2);
  cluster_.SendMessage("a", message);
  cluster_.Run(absl::Seconds(4), kNodes);
  EXPECT_EQ(cluster_.Get(job_).hang().ranks_size(), 0);
}

TEST_F(Hangs, AreFoundAgainAfterCoordinatorRestartWithoutSecondEvent) {
  Begin();
  Hang();
  cluster_.Restart();
  for (const std::string& node : kNodes) {
    v1::Hello hello = cluster_.MakeHello(node, 2);
    std::vector<v1::RankReport> ranks;
    for (uint32_t rank = 0; rank < 4; ++rank) {
      if (NodeOf(rank) != node) continue;
      ranks.push_back(Harness::MakeReport(rank, v1::STARTED));
      *ranks.back().mutable_silence() = ToProto(absl::Seconds(90));
    }
    *hello.add_inventory() = cluster_.MakeInventory(job_, ranks);
    cluster_.Open(hello);
  }
  EXPECT_FALSE(cluster_.Get(job_).has_hang());
  EXPECT_TRUE(SentInspect(cluster_.TickAtDeadline()));
  InspectAll();
  EXPECT_EQ(cluster_.Get(job_).hang().suspect_rank(), 2u);
  EXPECT_EQ(CountEvents(events::kJobHung), 1);
  ReportSilence(0, absl::ZeroDuration());
  EXPECT_EQ(CountEvents(events::kHangEnded), 1);
}

TEST_F(Hangs, RestartCountsAsFailure) {
  Begin("restart");
  ReportSilenceOfAll(absl::Seconds(15));
  cluster_.Run(absl::Seconds(45), kNodes);
  for (uint32_t rank = 0; rank < 4; ++rank) {
    ReportInspection(rank, rank == 2 ? "stopped" : "sleeping", "futex");
  }
  const Effects effects = cluster_.TickAtDeadline();
  v1::Job job = cluster_.Get(job_);
  EXPECT_EQ(job.state(), v1::STOPPING);
  EXPECT_FALSE(job.has_hang());
  for (const std::string& node : kNodes) {
    const v1::CoordinatorMessage* const sent =
        FindSent(effects, cluster_.session(node), Message::kStop);
    ASSERT_NE(sent, nullptr) << node;
    EXPECT_TRUE(sent->stop().dump_stacks());
    EXPECT_EQ(sent->stop().reason(), reasons::kRankHung);
  }
  ReportSilence(0, absl::ZeroDuration());  // it prints its stacks
  EXPECT_EQ(CountEvents(events::kHangEnded), 0);
  cluster_.ExitAll(job_, testing::KilledBy(6));
  job = cluster_.Get(job_);
  EXPECT_EQ(job.restarts(), 1u);
  EXPECT_EQ(job.generation(), 2u);
  EXPECT_EQ(job.first_failure().reason(), reasons::kRankHung);
  EXPECT_EQ(job.first_failure().rank(), 2u);
  EXPECT_EQ(job.first_failure().node(), "b");
  EXPECT_THAT(job.first_failure().message(),
              HasSubstr("rank 2 on b is stopped by a signal or a debugger"));
  EXPECT_EQ(CountEvents(events::kJobHung), 1);
}

TEST_F(Hangs, StopsForOtherReasonsDoNotDumpStacks) {
  Begin();
  Hang();
  cluster_.Cancel(job_).status().IgnoreError();
  EXPECT_FALSE(cluster_.Get(job_).has_hang());
  cluster_.ExitAll(job_, testing::KilledBy(15));
  EXPECT_EQ(cluster_.State(job_), v1::CANCELLED);
}

// A train job with 64 ranks on 8 nodes, without a hang_timeout of its own.
class Stalls : public ::testing::Test {
 protected:
  static constexpr uint32_t kRanks = 64;

  void SetUp() override {
    for (uint32_t node = 0; node < 8; ++node) cluster_.Join(NodeOf(8 * node), 8);
    job_ = cluster_.Submit(testing::MakeSpec(8, 8));
    cluster_.BringUp(job_);
    ASSERT_EQ(cluster_.State(job_), v1::RUNNING);
    Train();
  }
  static std::string NodeOf(uint32_t rank) { return absl::StrCat("node-", rank / 8); }
  std::string NodeOfRank(uint32_t rank) const { return cluster_.Get(job_).ranks(rank).node(); }

  void Report(uint32_t rank, const std::string& phase = "training") {
    v1::RankReport report = Harness::MakeReport(rank, v1::CONNECTED);
    v1::Progress& progress = *report.mutable_progress();
    progress.set_phase(phase);
    progress.set_step(step_);
    progress.set_collective_sequence(3 * step_);
    progress.set_step_seconds(0.1);
    *progress.mutable_first_step_time() = ToProto(cluster_.now().wall);
    cluster_.Report(NodeOfRank(rank), job_, report);
  }
  // All ranks complete a step.
  void Train(const std::string& phase = "training") {
    ++step_;
    for (uint32_t rank = 0; rank < kRanks; ++rank) Report(rank, phase);
  }
  std::vector<std::string> nodes() const {
    std::vector<std::string> nodes;
    for (uint32_t rank = 0; rank < kRanks; rank += 8) nodes.push_back(NodeOf(rank));
    return nodes;
  }
  static int CountInspections(const Effects& effects) {
    return static_cast<int>(
        std::count_if(effects.sends.begin(), effects.sends.end(),
                      [](const auto& send) { return send.message.has_inspect(); }));
  }
  void Inspect(uint32_t stopped) {
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      v1::WorkerMessage message;
      v1::InspectionReport& report = *message.mutable_inspection();
      report.set_job_id(job_);
      report.set_generation(1);
      v1::RankInspection& inspection = *report.add_ranks();
      inspection.set_rank(rank);
      inspection.set_state(rank == stopped ? "stopped" : "sleeping");
      if (rank != stopped) {
        inspection.set_stack("main thread:\n  futex\n  muster::collectives::Ring::AllReduce\n");
      }
      cluster_.SendMessage(NodeOfRank(rank), message);
    }
    cluster_.TickAtDeadline();
  }
  int CountEvents(const std::string& type) const {
    const std::vector<std::string> types = cluster_.EventTypes(job_);
    return static_cast<int>(std::count(types.begin(), types.end(), type));
  }

  Harness cluster_;
  std::string job_;
  uint64_t step_ = 0;
};

TEST_F(Stalls, NameAStoppedRankOf64WithinFiveSeconds) {
  const Time stopped_at = cluster_.now();
  // The others wait for rank 37 in a collective, and report so.
  cluster_.Run(absl::Seconds(2), nodes());
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    if (rank != 37) Report(rank);
  }
  EXPECT_EQ(CountInspections(cluster_.Run(absl::Milliseconds(500), nodes())), 8);
  Inspect(37);
  EXPECT_LE(cluster_.now().steady - stopped_at.steady, absl::Seconds(5));
  const v1::Job job = cluster_.Get(job_);
  EXPECT_EQ(job.state(), v1::RUNNING);
  EXPECT_EQ(job.hang().suspect_rank(), 37u);
  EXPECT_EQ(job.hang().node(), job.ranks(37).node());
  EXPECT_EQ(job.hang().ranks_size(), 64);
  EXPECT_THAT(cluster_.core().ListEvents(JobId(job_), 0)->back().message(),
              HasSubstr(absl::StrCat("no rank has completed a step for 2s: rank 37 on ",
                                     job.ranks(37).node(), " is stopped by a signal")));
  // It goes on before failure_timeout.
  Train();
  EXPECT_FALSE(cluster_.Get(job_).has_hang());
  EXPECT_EQ(CountEvents(events::kJobHung), 1);
  EXPECT_EQ(CountEvents(events::kHangEnded), 1);
}

TEST_F(Stalls, AreReportedOnceAcrossARestartOfTheCoordinator) {
  cluster_.Run(absl::Milliseconds(2500), nodes());
  Inspect(5);
  ASSERT_EQ(CountEvents(events::kJobHung), 1);
  const v1::Job job = cluster_.Get(job_);
  std::vector<v1::Hello> hellos;
  for (uint32_t node = 0; node < 8; ++node) {
    v1::Hello hello = cluster_.MakeHello(NodeOf(8 * node), 8);
    std::vector<v1::RankReport> reports;
    for (const v1::RankStatus& rank : job.ranks()) {
      if (rank.node() == NodeOf(8 * node)) {
        reports.push_back(Harness::MakeReport(rank.rank(), v1::CONNECTED));
      }
    }
    *hello.add_inventory() = cluster_.MakeInventory(job_, reports);
    hellos.push_back(hello);
  }
  cluster_.Restart();
  for (const v1::Hello& hello : hellos) cluster_.Open(hello);
  for (uint32_t rank = 0; rank < kRanks; ++rank) Report(rank);
  EXPECT_EQ(CountInspections(cluster_.Run(absl::Milliseconds(2500), nodes())), 8);
  Inspect(5);
  EXPECT_EQ(cluster_.Get(job_).hang().suspect_rank(), 5u);
  EXPECT_EQ(CountEvents(events::kJobHung), 1);
  EXPECT_EQ(CountEvents(events::kHangEnded), 0);
}

TEST_F(Stalls, DoNotFollowFromOtherPhasesThanTraining) {
  Train("evaluating");
  EXPECT_EQ(CountInspections(cluster_.Run(absl::Minutes(1), nodes())), 0);
  EXPECT_EQ(CountEvents(events::kJobHung), 0);
}

TEST_F(Stalls, AreAnnouncedAFewTimesPerHour) {
  for (int i = 0; i < 18; ++i) {
    cluster_.Run(absl::Milliseconds(2500), nodes());
    if (i < 16) Inspect(5);
    Train();
  }
  EXPECT_EQ(CountEvents(events::kJobHung), 16);
  cluster_.Run(absl::Hours(1), nodes());
  Train();
  cluster_.Run(absl::Milliseconds(2500), nodes());
  Inspect(5);
  EXPECT_EQ(CountEvents(events::kJobHung), 17);
}

}  // namespace
}  // namespace muster::core
