#include "coordinator/core/recovery/failures.h"

#include <csignal>

#include "coordinator/core/jobs/job_record.h"
#include "coordinator/core/testing/parts.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::core {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::MakeContext;
using testing::Start;
using testing::Submit;

// A running job with rank 0 on node a, rank 1 on node b and rank 2 on node c.
class FailuresTest : public ::testing::Test {
 protected:
  void SetUp() override {
    job_ = &Submit(jobs_, "job");
    v1::JobSpec spec;
    spec.mutable_restart()->set_max(3);
    job_->SetSpec(spec);
    Start(jobs_, *job_, {"a", "b", "c"});
    jobs_.states.Transition(*job_, v1::RUNNING, "", "");
    for (RankState& rank : job_->generation->ranks) rank.started = true;
  }
  void Exit(uint32_t rank, const v1::ExitInfo& exit) {
    GenerationState& generation = *job_->generation;
    v1::RankRecord& record = generation.RecordOf(generation.ranks[rank]);
    *record.mutable_exit() = ToRecord(exit);
    record.set_exited(true);
    generation.Reach(generation.ranks[rank], v1::EXITED);
    failures_.NoteExit(*job_, generation.ranks[rank]);
  }
  void ReportLostPeer(uint32_t rank, uint32_t peer,
                      absl::StatusCode code = absl::StatusCode::kUnavailable) {
    v1::FailureReport report;
    report.set_code(static_cast<int>(code));
    report.set_message("connection reset");
    report.set_peer_rank(peer);
    RankState& state = job_->generation->ranks[rank];
    state.failure = report;
    failures_.NoteReport(*job_, state);
  }
  static v1::ExitInfo Killed() {
    v1::ExitInfo exit;
    exit.set_signal(SIGKILL);
    return exit;
  }

  Context context_ = MakeContext();
  Jobs jobs_{context_};
  Failures failures_{jobs_.table, context_};
  Job* job_ = nullptr;
};

TEST_F(FailuresTest, IndependentExitIsTheCause) {
  Exit(1, Killed());
  failures_.Attribute(*job_, /*final=*/false);
  ASSERT_TRUE(failures_.IsAttributed(*job_));
  EXPECT_EQ(job_->status.first_failure().rank(), 1u);
  EXPECT_EQ(job_->status.first_failure().reason(), reasons::kRankKilled);
  EXPECT_EQ(job_->status.past_failures_size(), 1);
}

TEST_F(FailuresTest, LostPeerReportIsAConsequence) {
  ReportLostPeer(0, /*peer=*/2);
  EXPECT_THAT(failures_.AccusedRanks(*job_), ElementsAre(2));
  failures_.Attribute(*job_, /*final=*/false);
  EXPECT_FALSE(failures_.IsAttributed(*job_));
  Exit(2, Killed());
  EXPECT_THAT(failures_.AccusedRanks(*job_), IsEmpty()) << "the rank has exited";
  failures_.Attribute(*job_, /*final=*/false);
  EXPECT_EQ(job_->status.first_failure().rank(), 2u);
}

TEST_F(FailuresTest, FallsBackToConsequenceWithoutCause) {
  ReportLostPeer(0, /*peer=*/2);
  failures_.Attribute(*job_, /*final=*/true);
  EXPECT_EQ(job_->status.first_failure().rank(), 0u);
}

TEST_F(FailuresTest, RankThatPeerTimedOutOnIsHung) {
  ReportLostPeer(0, /*peer=*/2, absl::StatusCode::kDeadlineExceeded);
  failures_.Attribute(*job_, /*final=*/true);
  EXPECT_EQ(job_->status.first_failure().reason(), reasons::kRankHung);
  EXPECT_EQ(job_->status.first_failure().rank(), 2u);
  EXPECT_EQ(job_->status.first_failure().node(), "c");
}

TEST_F(FailuresTest, LostNodeCausesLossOfItsRanks) {
  ReportLostPeer(0, /*peer=*/1);
  Node node;
  node.record.set_name("b");
  failures_.NoteNodeLost(*job_, node, "no heartbeat for 10s");
  failures_.Attribute(*job_, /*final=*/false);
  EXPECT_EQ(job_->status.first_failure().reason(), reasons::kNodeLost);
  EXPECT_EQ(job_->status.first_failure().node(), "b");
}

TEST_F(FailuresTest, RankStoppedByWorkerDisplacesJob) {
  v1::ExitInfo exit;
  exit.set_signal(SIGTERM);
  exit.set_stopped_by_worker(true);
  Exit(0, exit);
  EXPECT_EQ(failures_.Earliest(*job_), nullptr);
  ASSERT_NE(failures_.Displaced(*job_), nullptr);
  EXPECT_THAT(*failures_.Displaced(*job_), HasSubstr("rank 0 on a was stopped by its worker"));
}

TEST_F(FailuresTest, IgnoresExitsAfterStop) {
  jobs_.states.Transition(*job_, v1::STOPPING, "", "");
  Exit(0, Killed());
  EXPECT_EQ(failures_.Earliest(*job_), nullptr);
  failures_.Attribute(*job_, /*final=*/true);
  EXPECT_FALSE(failures_.IsAttributed(*job_));
}

TEST_F(FailuresTest, RecallRebuildsEvidenceFromRecords) {
  ReportLostPeer(0, /*peer=*/2);
  job_->suspected_failure = *failures_.Earliest(*job_);
  Exit(1, Killed());
  Failures again(jobs_.table, context_);
  again.Recall(*job_);
  ASSERT_NE(again.Earliest(*job_), nullptr);
  EXPECT_EQ(again.Earliest(*job_)->rank(), 0u);
  EXPECT_THAT(again.AccusedRanks(*job_), ElementsAre(2));
  again.Attribute(*job_, /*final=*/true);
  EXPECT_EQ(job_->status.first_failure().rank(), 1u);
}

TEST_F(FailuresTest, NewGenerationStartsWithoutEvidence) {
  Exit(1, Killed());
  failures_.Clear(*job_);
  EXPECT_EQ(failures_.Earliest(*job_), nullptr);
  EXPECT_THAT(failures_.AccusedRanks(*job_), IsEmpty());
}

}  // namespace
}  // namespace muster::core
