// Tests that nothing that a rank reports leaves the worker out of bounds.
#include <string>

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/report_bounds.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/agent/storage/data_directory.h"
#include "worker/agent/testing/agent_fixture.h"

namespace muster::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

bool IsWithinBounds(v1::RankReport report) { return Clamp(report).empty(); }

class ReportsTest : public AgentTest {
 protected:
  // Whether all reports so far were within bounds, those of heartbeats included.
  bool AllWithinBounds() {
    for (const v1::WorkerMessage& message : coordinator_->messages()) {
      for (const v1::RankReport& rank : message.report().ranks()) {
        if (!IsWithinBounds(rank)) return false;
      }
      for (const v1::GenerationReport& report : message.heartbeat().progress()) {
        for (const v1::RankReport& rank : report.ranks()) {
          if (!IsWithinBounds(rank)) return false;
        }
      }
    }
    return true;
  }
};

TEST_F(ReportsTest, OmitsTimeLeftOfAProgramWithoutEnd) {
  MakeFifo("go");
  StartBoth();
  const std::string append = " total_steps=9223372036854775807 >> $MUSTER_PROGRESS; ";
  coordinator_->Send(
      Launch("echo step=1" + append + "cat " + Path("go") + "; echo step=2" + append));
  ASSERT_TRUE(coordinator_->WaitForRank(
      kJob, 1, 0, [](const v1::RankReport& report) { return report.progress().step() == 1; }));
  Unblock("go");
  const v1::RankReport report = WaitForRank(0, IsExited);
  EXPECT_EQ(report.progress().step(), 2u);
  EXPECT_FALSE(report.progress().has_time_left());
  EXPECT_THAT(report.warnings(), IsEmpty());
  EXPECT_TRUE(AllWithinBounds());
}

TEST_F(ReportsTest, ReportsTheMemoryOfARank) {
  StartBoth();
  coordinator_->Send(Launch("exec sleep 600"));
  WaitForRank(0, IsStarted);
  v1::RankReport report;
  ASSERT_TRUE(coordinator_->WaitFor([&report](const v1::WorkerMessage& message) {
    for (const v1::GenerationReport& progress : message.heartbeat().progress()) {
      for (const v1::RankReport& rank : progress.ranks()) {
        if (rank.memory_bytes() > 0) report = rank;
      }
    }
    return report.memory_bytes() > 0;
  }));
  EXPECT_LT(report.memory_bytes(), 64u << 20);
}

TEST_F(ReportsTest, WarnsOnceAboutALineThatIsNotUnderstood) {
  MakeFifo("go");
  StartBoth();
  coordinator_->Send(Launch("echo foo bar >> $MUSTER_PROGRESS; cat " + Path("go") +
                            "; echo foo >> $MUSTER_PROGRESS"));
  // While the rank runs, and although the line contains no progress.
  ASSERT_TRUE(coordinator_->WaitForRank(
      kJob, 1, 0, [](const v1::RankReport& report) { return report.warnings_size() > 0; }));
  Unblock("go");
  EXPECT_THAT(WaitForRank(0, IsExited).warnings(),
              ElementsAre("MUSTER_PROGRESS: line 1 is not understood: \"foo bar\"; write key=value "
                          "pairs or a JSON object per line"));
}

TEST_F(ReportsTest, WarnsAboutTheLastLineOfAProgram) {
  StartBoth();
  coordinator_->Send(Launch("echo foo >> $MUSTER_PROGRESS"));
  EXPECT_THAT(WaitForRank(0, IsExited).warnings(), ElementsAre(HasSubstr("line 1")));
}

TEST_F(ReportsTest, TruncatesTheErrorOfAnExec) {
  StartBoth();
  v1::CoordinatorMessage message = Launch("");
  v1::JobSpec& spec = *message.mutable_launch()->mutable_spec();
  spec.clear_command();
  spec.add_command("no-such-program");
  std::string path;
  while (path.size() <= 2 * limits::kReportedTextBytes) path += "/no/such/zwölf:";
  (*spec.mutable_env())["PATH"] = path;
  coordinator_->Send(message);
  const v1::RankReport report = WaitForRank(0, IsExited);
  EXPECT_THAT(report.exit().failure().message(), HasSubstr("exec no-such-program: not found"));
  EXPECT_LE(report.exit().failure().message().size(), limits::kReportedTextBytes);
  EXPECT_TRUE(IsWithinBounds(report));
}

TEST_F(ReportsTest, CorrectsStoredReports) {
  MakeFifo("go");
  StartBoth();
  coordinator_->Send(Launch("cat " + Path("go")));
  WaitForRank(0, IsStarted);
  agent_.reset();
  // A report that an earlier version may have stored.
  v1::RankReport stored;
  stored.set_phase(v1::STARTED);
  stored.mutable_progress()->mutable_time_left()->set_seconds(int64_t{1} << 62);
  ASSERT_TRUE(
      WriteMessage(Path("data/jobs/job-1/generation-1/rank-0000/report.pb"), stored, false).ok());
  StartAgent();
  ASSERT_TRUE(coordinator_->WaitForSessions(2));
  const v1::Hello hello = coordinator_->hello();
  ASSERT_EQ(hello.inventory_size(), 1);
  const v1::RankReport& report = hello.inventory(0).ranks(0);
  EXPECT_TRUE(IsWithinBounds(report));
  EXPECT_THAT(report.warnings(), ElementsAre(HasSubstr("progress.time_left is not from 0 to")));
  Unblock("go");
  WaitForRank(0, IsExited);
}

}  // namespace
}  // namespace muster::agent
