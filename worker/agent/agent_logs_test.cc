// The limit of ranks' logs, broken log streams, and the ends of logs that the coordinator keeps.
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "worker/agent/testing/agent_fixture.h"
#include "worker/agent/testing/scripted_coordinator.h"

namespace muster::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Log = ScriptedCoordinator::Log;

constexpr uint64_t kLimitBytes = 2 << 20;

class AgentLogsTest : public AgentTest {
 protected:
  void StartLimited() {
    AgentOptions options = Options();
    options.rank_log_bytes = kLimitBytes;
    auto agent = Agent::Start(options, [](const absl::Status&) {});
    ASSERT_TRUE(agent.ok()) << agent.status();
    agent_ = *std::move(agent);
    ASSERT_TRUE(coordinator_->WaitForSessions(1));
  }
  v1::WorkerMessage WaitFor(const std::function<bool(const v1::WorkerMessage&)>& predicate) {
    v1::WorkerMessage found;
    EXPECT_TRUE(coordinator_->WaitFor(predicate, &found));
    return found;
  }
  v1::LogUnavailable WaitForRefusal(uint64_t transfer) {
    return WaitFor([transfer](const v1::WorkerMessage& message) {
             return message.log_unavailable().transfer() == transfer;
           })
        .log_unavailable();
  }
  std::vector<v1::LogTail> Tails() {
    // Waits for the answer to a request, which follows the tails.
    SendOpenLog(++last_request_, 7, false);
    WaitForRefusal(last_request_);
    std::vector<v1::LogTail> tails;
    for (const v1::WorkerMessage& message : coordinator_->messages()) {
      if (message.has_log_tail()) tails.push_back(message.log_tail());
    }
    return tails;
  }

  uint64_t last_request_ = 99;
};

TEST_F(AgentLogsTest, LimitsLogsAndReportsIt) {
  StartLimited();
  coordinator_->Send(Launch("yes 0123456789 | head -c 11000000; echo end"));
  v1::RankReport report;
  ASSERT_TRUE(coordinator_->WaitForRank(
      kJob, 1, 0, [](const v1::RankReport& r) { return IsExited(r) && !r.warnings().empty(); },
      &report));
  EXPECT_THAT(report.warnings(),
              ElementsAre("the stdout log has reached the limit of 2MiB (--rank-log-bytes of the "
                          "worker); its oldest output is dropped"));
  struct stat info = {};
  const std::string path = directory_ + "/data/jobs/job-1/logs/generation-1/rank-0000.stdout";
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_LE(info.st_blocks * 512, static_cast<int64_t>(kLimitBytes));
  SendOpenLog(1, 0, false);
  ASSERT_TRUE(coordinator_->WaitForLog(1, [](const Log& log) { return log.finished; }));
  const Log log = coordinator_->log(1);
  EXPECT_EQ(log.first_offset % 11, 0u);
  EXPECT_EQ(log.first_offset + log.data.size(), 11'000'004u);
  EXPECT_EQ(log.data.substr(0, 11), "0123456789\n");
  EXPECT_EQ(log.data.substr(log.data.size() - 4), "end\n");
  EXPECT_EQ(log.notice, absl::StrCat("rank 0, stdout: the first ", log.first_offset,
                                     " bytes were dropped (limit of each log: 2MiB, "
                                     "--rank-log-bytes of the worker)"));
}

TEST_F(AgentLogsTest, ReportsLinesThatCouldNotBeStored) {
  constexpr uint64_t kLines = 20'000;
  MakeFifo("begin");
  StartBoth();
  coordinator_->Send(Launch(absl::StrCat("cat ", Path("begin"), "; seq ", kLines)));
  const pid_t rank = static_cast<pid_t>(WaitForRank(0, IsStarted).pid());
  int shim = 0;
  ASSERT_EQ(std::sscanf(Read(absl::StrCat("/proc/", rank, "/stat")).c_str(), "%*d (%*[^)]) %*c %d",
                        &shim),
            1);
  // A limit of the size of files in place of a full disk.
  const rlimit full = {20'000, RLIM_INFINITY};
  ASSERT_EQ(prlimit(shim, RLIMIT_FSIZE, &full, nullptr), 0);
  Unblock("begin");
  const v1::LostOutput lost = WaitForRank(0, IsExited).lost_output();
  EXPECT_EQ(lost.reason(), "File too large");
  SendOpenLog(1, 0, false);
  ASSERT_TRUE(coordinator_->WaitForLog(1, [](const Log& log) { return log.finished; }));
  const Log log = coordinator_->log(1);
  EXPECT_EQ(std::count(log.data.begin(), log.data.end(), '\n') + lost.lines(), kLines + 1);
  EXPECT_EQ(log.notice, absl::StrCat("rank 0, stdout: ", lost.lines(), " lines (", lost.bytes(),
                                     " bytes) could not be stored: File too large"));
}

TEST_F(AgentLogsTest, JoinedOutputIsOneLogAndTheTail) {
  StartBoth();
  v1::CoordinatorMessage message = Launch("echo one; echo two >&2; echo three; exit 3");
  message.mutable_launch()->mutable_spec()->set_output("joined");
  coordinator_->Send(message);
  EXPECT_EQ(WaitForRank(0, IsExited).exit().stderr_tail(), "one\ntwo\nthree\n");
  SendOpenLog(1, 0, false);
  ASSERT_TRUE(coordinator_->WaitForLog(1, [](const Log& log) { return log.finished; }));
  EXPECT_EQ(coordinator_->log(1).data, "one\ntwo\nthree\n");
}

TEST_F(AgentLogsTest, RejectsTooSmallLimit) {
  AgentOptions options = Options();
  options.rank_log_bytes = kLimitBytes - 1;
  EXPECT_THAT(std::string(CheckOptions(options).message()),
              HasSubstr("is too small; set at least 2MiB, or 0 for no limit"));
  options.rank_log_bytes = 0;
  EXPECT_TRUE(CheckOptions(options).ok());
}

TEST_F(AgentLogsTest, ReportsLogStreamThatCannotBeOpened) {
  StartBoth();
  coordinator_->Send(Launch("echo one"));
  WaitForRank(0, IsExited);
  coordinator_->RefuseLogs(14);
  SendOpenLog(1, 0, true);
  const v1::LogUnavailable refusal = WaitForRefusal(1);
  EXPECT_EQ(refusal.code(), static_cast<int>(absl::StatusCode::kUnavailable));
  EXPECT_EQ(refusal.message(), "the node that has the log cannot send it: no logs now");
  coordinator_->RefuseLogs(0);
  SendOpenLog(2, 0, true);
  EXPECT_TRUE(coordinator_->WaitForLog(2, [](const Log& log) { return log.finished; }));
  EXPECT_EQ(coordinator_->log(2).data, "one\n");
}

TEST_F(AgentLogsTest, SendsTheEndsOfAnExitedRanksLogAfterItsExit) {
  StartBoth();
  coordinator_->Send(Launch("echo out; echo err >&2; exit 3"));
  const v1::LogTail tail =
      WaitFor([](const v1::WorkerMessage& message) { return message.has_log_tail(); }).log_tail();
  EXPECT_EQ(tail.job_id(), kJob);
  EXPECT_EQ(tail.generation(), 1u);
  EXPECT_EQ(tail.rank(), 0u);
  EXPECT_EQ(tail.stdout_end().data(), "out\n");
  EXPECT_EQ(tail.stdout_end().lines_size(), 1);
  EXPECT_EQ(tail.stderr_end().data(), "err\n");
  for (const v1::WorkerMessage& message : coordinator_->messages()) {
    if (message.has_log_tail()) FAIL() << "the exit was reported after the log's end";
    if (message.report().ranks_size() > 0 && IsExited(message.report().ranks(0))) break;
  }
  EXPECT_EQ(Tails().size(), 1u);
  // The coordinator may not have received it before the session broke.
  coordinator_->BreakSession();
  ASSERT_TRUE(coordinator_->WaitForSessions(2));
  EXPECT_EQ(Tails().size(), 2u);
}

TEST_F(AgentLogsTest, SendsTheEndOfFewRanksOfALargeJob) {
  StartBoth();
  v1::CoordinatorMessage launch = Launch("echo out; test $RANK != 2", /*ranks=*/3);
  launch.mutable_launch()->set_world_size(100);
  coordinator_->Send(launch);
  for (uint32_t rank = 0; rank < 3; ++rank) WaitForRank(rank, IsExited);
  std::set<uint32_t> ranks;
  for (const v1::LogTail& tail : Tails()) ranks.insert(tail.rank());
  EXPECT_THAT(ranks, ::testing::ElementsAre(0, 2));
}

TEST_F(AgentLogsTest, RankThatCannotBeLaunchedHasNoLogEnd) {
  StartBoth();
  v1::CoordinatorMessage launch = Launch("");
  launch.mutable_launch()->mutable_spec()->set_command(0, "/no/such/program");
  coordinator_->Send(launch);
  WaitForRank(0, IsExited);
  EXPECT_TRUE(Tails().empty());
}

}  // namespace
}  // namespace muster::agent
