// Warnings about what ranks report, and reports that no healthy worker sends.
#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "coordinator/core/reasons.h"
#include "coordinator/core/testing/harness.h"
#include "coordinator/core/testing/totals.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::core {
namespace {

using ::testing::ElementsAre;
using testing::Harness;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::MakeCommandSpec;

v1::RankReport Warning(uint32_t rank, const std::string& text) {
  v1::RankReport report = Harness::MakeReport(rank, v1::STARTED);
  report.add_warnings(text);
  return report;
}

size_t CountWarnings(Harness& cluster, const std::string& job) {
  const std::vector<std::string> types = cluster.EventTypes(job);
  return std::count(types.begin(), types.end(), events::kWarning);
}

class Warnings : public ::testing::Test {
 protected:
  void SetUp() override {
    cluster_.Join("a");
    cluster_.Join("b");
    job_ = cluster_.Submit(MakeCommandSpec(2));
  }

  Harness cluster_;
  std::string job_;
};

TEST_F(Warnings, AreRecordedOncePerProblem) {
  cluster_.Report("a", job_, Warning(0, "odd"));
  cluster_.Report("a", job_, Warning(0, "odd"));
  cluster_.Report("b", job_, Warning(1, "odd"));
  cluster_.Report("b", job_, Warning(1, "odder"));
  EXPECT_THAT(cluster_.Get(job_).warnings(), ElementsAre("rank 0: odd", "rank 1: odder"));
  EXPECT_EQ(CountWarnings(cluster_, job_), 2u);
}

TEST_F(Warnings, TellAtSubmissionWhichLimitsAreNotEnforced) {
  v1::JobSpec spec = MakeCommandSpec(1);
  spec.mutable_resources()->set_memory(1 << 30);
  EXPECT_THAT(cluster_.TrySubmit(spec)->warnings(), IsEmpty());
  for (const char* node : {"n10", "n9"}) {
    v1::Hello hello = cluster_.MakeHello(node, 1);
    hello.set_limits_unavailable("no control group");
    (*hello.mutable_labels())["kind"] = "old";
    cluster_.Open(hello);
  }
  EXPECT_THAT(cluster_.TrySubmit(spec)->warnings(),
              ElementsAre("resources.memory is not enforced on 2 of 4 nodes that the job could "
                          "use, e.g. n9: no control group"));
  (*spec.mutable_resources()->mutable_select())["kind"] = "new";
  EXPECT_THAT(cluster_.TrySubmit(spec)->warnings(), IsEmpty());
}

TEST_F(Warnings, AreKept) {
  cluster_.Report("a", job_, Warning(0, "odd"));
  cluster_.Restart();
  EXPECT_THAT(cluster_.Get(job_).warnings(), ElementsAre("rank 0: odd"));
  cluster_.Join("a");
  cluster_.Join("b");
  EXPECT_TRUE(cluster_.Cancel(job_).ok());
  EXPECT_THAT(cluster_.Get(job_).warnings(), ElementsAre("rank 0: odd"));
}

TEST_F(Warnings, AreBounded) {
  for (int i = 0; i < 3 * limits::kWarningsPerJob; ++i) {
    cluster_.Report("a", job_, Warning(0, absl::StrCat("odd ", i)));
  }
  const v1::Job job = cluster_.Get(job_);
  EXPECT_EQ(job.warnings_size(), limits::kWarningsPerJob);
  EXPECT_EQ(job.warnings(limits::kWarningsPerJob - 1), "further warnings are not shown");
  EXPECT_EQ(CountWarnings(cluster_, job_), static_cast<size_t>(limits::kWarningsPerJob));
}

TEST_F(Warnings, AreInDetailsOnly) {
  cluster_.Report("a", job_, Warning(0, "odd"));
  EXPECT_THAT(cluster_.core().GetJob(JobId(job_), /*detailed=*/false, cluster_.now())->warnings(),
              IsEmpty());
}

TEST_F(Warnings, NameRanksThatTheNodeDoesNotRun) {
  cluster_.ReportPhase("a", job_, 1, v1::EXITED);
  cluster_.ReportPhase("a", job_, 4000000000, v1::EXITED);
  EXPECT_THAT(cluster_.Get(job_).warnings(),
              ElementsAre("rank 1: reported by node a, which does not run it; dropped"));
  EXPECT_EQ(cluster_.Get(job_).ranks(1).phase(), v1::PLACED);
}

TEST_F(Warnings, LogAndCountTheServicesCorrections) {
  const Corrections corrections = {{"progress.phase", "progress.phase is 300 bytes long"}};
  std::vector<std::string> logs;
  for (int i = 0; i < 5; ++i) {
    const Effects effects =
        cluster_.Step(SessionMessage{cluster_.session("a"), v1::WorkerMessage(), corrections});
    logs.insert(logs.end(), effects.logs.begin(), effects.logs.end());
  }
  EXPECT_EQ(logs.size(), 3u);  // the first, the second and the fourth
  EXPECT_THAT(logs.front(), HasSubstr("node a reported a field out of bounds: progress.phase is "));
  EXPECT_EQ(testing::TotalOf(cluster_.core().TakeStats(), "muster_quarantined_reports_total",
                             {"progress.phase"}),
            5);
  EXPECT_EQ(cluster_.StateOf("a"), v1::READY);
}

TEST_F(Warnings, NameCorrectedFieldsOfCalls) {
  const auto correct = [&](const std::string& job, std::optional<uint32_t> rank,
                           const std::string& problem) {
    const Corrections corrections = {{"put_key", problem, job, rank}};
    cluster_.Step(SessionMessage{cluster_.session("b"), v1::WorkerMessage(), corrections});
  };
  correct(job_, std::nullopt, "put_key is invalid");
  correct(job_, 1, "inspection.stack is too long");
  EXPECT_THAT(cluster_.Get(job_).warnings(),
              ElementsAre("rank 1: put_key is invalid", "rank 1: inspection.stack is too long"));
  // Ranks and jobs of other nodes, and unknown jobs.
  correct(job_, 0, "get_key is invalid");
  EXPECT_EQ(cluster_.Get(job_).warnings(2), "rank 1: get_key is invalid");
  cluster_.Join("c");
  const std::string other = cluster_.Submit(MakeCommandSpec(1));
  ASSERT_EQ(cluster_.GetNode("c").slots(0).job_id(), other);
  correct(other, 0, "put_key is invalid");
  correct("no-such-job", 0, "put_key is invalid");
  EXPECT_THAT(cluster_.Get(other).warnings(), IsEmpty());
}

TEST_F(Warnings, MessageOfNoKindRenewsTheLease) {
  for (int i = 0; i < 10; ++i) {
    cluster_.Advance(Harness::DefaultOptions().lease / 2);
    cluster_.SendMessage("a", v1::WorkerMessage());
    cluster_.SendMessage("b", v1::WorkerMessage());
    cluster_.Step(Tick());
  }
  EXPECT_EQ(cluster_.StateOf("a"), v1::READY);
}

}  // namespace
}  // namespace muster::core
