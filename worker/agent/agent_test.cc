// Tests of the agent with real shims and processes and a scripted coordinator.
#include "worker/agent/agent.h"

#include <signal.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/grpc/status.h"
#include "common/http/http_get.h"
#include "common/metrics/differences.h"
#include "common/time/proto_time.h"
#include "common/version.h"
#include "gmock/gmock.h"
#include "grpcpp/client_context.h"
#include "grpcpp/create_channel.h"
#include "gtest/gtest.h"
#include "proto/muster/v1/rank.grpc.pb.h"
#include "worker/agent/testing/agent_fixture.h"
#include "worker/agent/testing/scripted_coordinator.h"
#include "worker/metric_families.h"
#include "worker/shim/fields.h"
#include "worker/shim/process_tree.h"

namespace muster::agent {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

TEST_F(AgentTest, HelloDescribesTheNode) {
  StartBoth();
  const v1::Hello hello = coordinator_->hello();
  EXPECT_EQ(hello.protocol_version(), kOldestProtocolVersion);
  EXPECT_EQ(hello.newest_protocol_version(), kProtocolVersion);
  EXPECT_EQ(hello.software_version(), kSoftwareVersion);
  EXPECT_EQ(hello.node_name(), "node-a");
  EXPECT_NE(hello.incarnation(), 0u);
  EXPECT_EQ(hello.slots_size(), 4);
  EXPECT_EQ(hello.slots(3).index(), 3u);
  EXPECT_EQ(hello.slots(3).kind(), "cpu");
  EXPECT_EQ(hello.labels().at("rack"), "r1");
  EXPECT_EQ(hello.metrics_address(), agent_->http_address().ToString());
  EXPECT_GT(hello.memory_bytes(), 0u);
  EXPECT_GT(hello.cpu_count(), 0u);
  EXPECT_EQ(hello.inventory_size(), 0);
  v1::WorkerMessage beat;
  ASSERT_TRUE(coordinator_->WaitFor(
      [](const v1::WorkerMessage& m) { return m.has_heartbeat() && m.heartbeat().sequence() == 3; },
      &beat));
}

TEST_F(AgentTest, RunsCommandInItsEnvironmentAndReportsIt) {
  StartBoth();
  coordinator_->Send(Launch("env; pwd; echo oops >&2; exit $((40 + RANK))", 2));
  const v1::RankReport first = WaitForRank(0, IsExited);
  const v1::RankReport second = WaitForRank(1, IsExited);
  EXPECT_EQ(first.exit().exit_code(), 40);
  EXPECT_EQ(second.exit().exit_code(), 41);
  EXPECT_EQ(second.exit().stderr_tail(), "oops\n");
  EXPECT_FALSE(second.exit().stopped_by_worker());
  EXPECT_GT(second.pid(), 0);
  const std::string data = directory_ + "/data";
  const std::string out = Read(data + "/jobs/job-1/logs/generation-1/rank-0001.stdout");
  for (const std::string& line :
       {std::string("RANK=1"), std::string("LOCAL_RANK=1"), std::string("WORLD_SIZE=2"),
        std::string("LOCAL_WORLD_SIZE=2"), std::string("NODE_RANK=0"), std::string("GROUP_RANK=0"),
        std::string("MUSTER_JOB_ID=job-1"), std::string("MUSTER_GENERATION=1"),
        std::string("MUSTER_NODE_NAME=node-a"), std::string("PYTHONUNBUFFERED=1"),
        "MUSTER_CACHE_DIR=" + data + "/cache",
        "MUSTER_WORKER_SOCKET=unix:" + data + "/run/rank.sock", data + "/jobs/job-1/work/rank-0001",
        "AGENT_TEST=" + directory_}) {
    EXPECT_THAT("\n" + out, HasSubstr("\n" + line + "\n"));
  }
}

TEST_F(AgentTest, ReportsStartBeforeExit) {
  MakeFifo("go");
  StartBoth();
  coordinator_->Send(Launch("cat " + Path("go")));
  const v1::RankReport started = WaitForRank(0, IsStarted);
  EXPECT_EQ(started.phase(), v1::STARTED);
  EXPECT_GT(started.pid(), 0);
  Unblock("go");
  EXPECT_EQ(WaitForRank(0, IsExited).exit().exit_code(), 0);
}

TEST_F(AgentTest, ReportsProgramThatCannotBeStarted) {
  StartBoth();
  v1::CoordinatorMessage message = Launch("");
  message.mutable_launch()->mutable_spec()->clear_command();
  message.mutable_launch()->mutable_spec()->add_command("/no/such/program");
  coordinator_->Send(message);
  const v1::RankReport report = WaitForRank(0, IsExited);
  EXPECT_EQ(report.exit().exit_code(), 127);
  EXPECT_THAT(report.exit().failure().message(),
              HasSubstr("exec /no/such/program: No such file or directory"));
  EXPECT_TRUE(report.exit().failure().not_retryable());
}

TEST_F(AgentTest, MissingShimFailsTheRankNotTheWorker) {
  AgentOptions options = Options();
  options.shim_binary = "/no/such/muster-shim";
  auto agent = Agent::Start(options, [](const absl::Status&) {});
  ASSERT_TRUE(agent.ok()) << agent.status();
  agent_ = *std::move(agent);
  ASSERT_TRUE(coordinator_->WaitForSessions(1));
  coordinator_->Send(Launch("true"));
  const v1::RankReport report = WaitForRank(0, IsExited);
  EXPECT_EQ(report.exit().exit_code(), 126);
  EXPECT_THAT(report.exit().failure().message(), HasSubstr("/no/such/muster-shim"));
}

TEST_F(AgentTest, StopEndsTheProcessTree) {
  MakeFifo("ready");
  StartBoth();
  coordinator_->Send(Launch("trap '' TERM; (setsid sh -c \"trap '' TERM; echo x > " +
                            Path("ready") +
                            "; while :; do sleep 0.01; done\" &); "
                            "while :; do sleep 0.01; done"));
  WaitForRank(0, IsStarted);
  Read(Path("ready"));
  SendStop(absl::Milliseconds(50));
  const v1::RankReport report = WaitForRank(0, IsExited);
  EXPECT_EQ(report.exit().signal(), SIGKILL);
  EXPECT_TRUE(report.exit().stopped_by_worker());
  EXPECT_EQ(shim::KillByEnvironment(cookie_), 0u);
}

TEST_F(AgentTest, IgnoresRepeatedLaunchAndForgetKeepsOnlyLogs) {
  StartBoth();
  coordinator_->Send(Launch("echo once"));
  WaitForRank(0, IsExited);
  coordinator_->Send(Launch("echo twice"));
  v1::CoordinatorMessage forget;
  forget.mutable_forget()->set_job_id(kJob);
  forget.mutable_forget()->set_generation(1);
  coordinator_->Send(forget);
  // When the next session exists, all earlier messages have been handled.
  coordinator_->BreakSession();
  ASSERT_TRUE(coordinator_->WaitForSessions(2));
  const std::string job = directory_ + "/data/jobs/job-1";
  EXPECT_EQ(Read(job + "/logs/generation-1/rank-0000.stdout"), "once\n");
}

TEST_F(AgentTest, NewerGenerationWaitsForOlderOneToEnd) {
  MakeFifo("ready");
  MakeFifo("go");
  StartBoth();
  coordinator_->Send(Launch("trap 'cat " + Path("go") + "; exit 5' TERM; echo x > " +
                            Path("ready") + "; while :; do sleep 0.01; done"));
  WaitForRank(0, IsStarted);
  Read(Path("ready"));
  coordinator_->Send(Launch("exit 6", 1, 2));
  Unblock("go");
  const v1::RankReport older = WaitForRank(0, IsExited, 1);
  EXPECT_EQ(older.exit().exit_code(), 5);
  EXPECT_TRUE(older.exit().stopped_by_worker());
  const v1::RankReport newer = WaitForRank(0, IsExited, 2);
  EXPECT_EQ(newer.exit().exit_code(), 6);
  EXPECT_GE(absl::ToUnixMillis(FromProto(newer.exit().time())),
            absl::ToUnixMillis(FromProto(older.exit().time())));
}

TEST_F(AgentTest, DropsMalformedLaunches) {
  StartBoth();
  v1::CoordinatorMessage message = Launch("true");
  message.mutable_launch()->set_job_id("../../etc");
  coordinator_->Send(message);
  message = Launch("true");
  message.mutable_launch()->mutable_ranks(0)->set_rank(9);
  coordinator_->Send(message);
  message = Launch("true");
  message.mutable_launch()->mutable_spec()->clear_command();
  coordinator_->Send(message);
  coordinator_->Send(Launch("exit 3", 1, 2));
  EXPECT_EQ(WaitForRank(0, IsExited, 2).exit().exit_code(), 3);
  EXPECT_FALSE(std::filesystem::exists(directory_ + "/etc"));
}

TEST_F(AgentTest, ReconnectsWithInventory) {
  MakeFifo("go");
  StartBoth();
  coordinator_->Send(Launch("cat " + Path("go")));
  const v1::RankReport before = WaitForRank(0, IsStarted);
  coordinator_->BreakSession();
  ASSERT_TRUE(coordinator_->WaitForSessions(2));
  const v1::Hello hello = coordinator_->hello();
  ASSERT_EQ(hello.inventory_size(), 1);
  EXPECT_EQ(hello.inventory(0).job_id(), kJob);
  EXPECT_EQ(hello.inventory(0).ranks(0).phase(), v1::STARTED);
  EXPECT_EQ(hello.inventory(0).ranks(0).pid(), before.pid());
  Unblock("go");
  WaitForRank(0, IsExited);
}

TEST_F(AgentTest, NextHelloHasExitsDuringCoordinatorLoss) {
  MakeFifo("go");
  StartBoth();
  const int port = coordinator_->port();
  coordinator_->Send(Launch("cat " + Path("go") + "; exit 9"));
  WaitForRank(0, IsStarted);
  coordinator_.reset();
  Unblock("go");
  coordinator_ = std::make_unique<ScriptedCoordinator>(port);
  EXPECT_EQ(WaitForRank(0, IsExited).exit().exit_code(), 9);
}

TEST_F(AgentTest, ReportsEventsBetweenHelloAndWelcome) {
  MakeFifo("go");
  StartBoth();
  const int port = coordinator_->port();
  coordinator_->Send(Launch("cat " + Path("go") + "; exit 9"));
  WaitForRank(0, IsStarted);
  coordinator_.reset();
  coordinator_ = std::make_unique<ScriptedCoordinator>(port, /*silent=*/true);
  ASSERT_TRUE(coordinator_->WaitForSessions(1));
  EXPECT_EQ(coordinator_->hello().inventory(0).ranks(0).phase(), v1::STARTED);
  Unblock("go");
  // Written once the worker has recorded the exit.
  const std::string report = directory_ + "/data/jobs/job-1/generation-1/rank-0000/report.pb";
  const absl::Time deadline = absl::Now() + kPatience;
  while (!std::filesystem::exists(report) && absl::Now() < deadline) sched_yield();
  coordinator_->Welcome();
  EXPECT_EQ(WaitForRank(0, IsExited).exit().exit_code(), 9);
}

TEST_F(AgentTest, StopsJobThatMayNotOutliveTheCoordinator) {
  StartBoth();
  v1::CoordinatorMessage message = Launch("exec sleep 600");
  *message.mutable_launch()->mutable_spec()->mutable_on_lost_coordinator()->mutable_stop_after() =
      ToProto(absl::Milliseconds(50));
  coordinator_->Send(message);
  WaitForRank(0, IsStarted);
  const int port = coordinator_->port();
  coordinator_.reset();
  const std::string record = directory_ + "/data/jobs/job-1/generation-1/rank-0000/exit";
  const absl::Time deadline = absl::Now() + kPatience;
  while (!std::filesystem::exists(record) && absl::Now() < deadline) sched_yield();
  coordinator_ = std::make_unique<ScriptedCoordinator>(port);
  const v1::RankReport report = WaitForRank(0, IsExited);
  EXPECT_EQ(report.exit().signal(), SIGTERM);
  EXPECT_TRUE(report.exit().stopped_by_worker());
}

TEST_F(AgentTest, NextWorkerAdoptsRanksAndExits) {
  MakeFifo("go");
  MakeFifo("ready");
  StartBoth();
  coordinator_->Send(Launch(
      "[ $RANK = 1 ] && exit 4; echo x > " + Path("ready") + "; cat " + Path("go") + "; exit 8",
      2));
  const v1::RankReport before = WaitForRank(0, IsStarted);
  Read(Path("ready"));
  WaitForRank(1, IsExited);
  agent_.reset();
  StartAgent();
  ASSERT_TRUE(coordinator_->WaitForSessions(2));
  const v1::Hello hello = coordinator_->hello();
  ASSERT_EQ(hello.inventory_size(), 1);
  ASSERT_EQ(hello.inventory(0).ranks_size(), 2);
  EXPECT_EQ(hello.inventory(0).ranks(1).phase(), v1::EXITED);
  EXPECT_EQ(hello.inventory(0).ranks(1).exit().exit_code(), 4);
  // The same process is still alive and now belongs to this worker.
  EXPECT_EQ(kill(static_cast<pid_t>(before.pid()), 0), 0);
  Unblock("go");
  const v1::RankReport after = WaitForRank(0, IsExited);
  EXPECT_EQ(after.exit().exit_code(), 8);
  EXPECT_EQ(after.pid(), before.pid());
}

TEST_F(AgentTest, NextWorkerStopsAdoptedRanks) {
  StartBoth();
  coordinator_->Send(Launch("exec sleep 600"));
  WaitForRank(0, IsStarted);
  agent_.reset();
  StartAgent();
  ASSERT_TRUE(coordinator_->WaitForSessions(2));
  SendStop(absl::Seconds(10));
  EXPECT_EQ(WaitForRank(0, IsExited).exit().signal(), SIGTERM);
}

TEST_F(AgentTest, ReportsLostShimAndKillsItsProcesses) {
  MakeFifo("ready");
  StartBoth();
  coordinator_->Send(Launch("(setsid sh -c \"echo x > " + Path("ready") +
                            "; exec sleep 600\" &); exec sleep 600"));
  const v1::RankReport started = WaitForRank(0, IsStarted);
  Read(Path("ready"));
  // The shim is the rank's parent.
  const std::string stat = Read(absl::StrCat("/proc/", started.pid(), "/stat"));
  const pid_t shim = atoi(stat.c_str() + stat.rfind(')') + 4);
  ASSERT_GT(shim, 1);
  ASSERT_EQ(kill(shim, SIGKILL), 0);
  const v1::RankReport report = WaitForRank(0, IsExited);
  EXPECT_EQ(report.exit().signal(), SIGKILL);
  EXPECT_EQ(report.exit().failure().message(), "shim lost");
  EXPECT_EQ(shim::KillByEnvironment(cookie_), 0u);
}

TEST_F(AgentTest, ServesLogByOffsetAndTail) {
  StartBoth();
  coordinator_->Send(Launch("seq 20000"));
  WaitForRank(0, IsExited);
  const std::string all = Read(directory_ + "/data/jobs/job-1/logs/generation-1/rank-0000.stdout");
  const auto finished = [](const ScriptedCoordinator::Log& log) { return log.finished; };

  SendOpenLog(11, 0, false);
  ASSERT_TRUE(coordinator_->WaitForLog(11, finished));
  EXPECT_EQ(coordinator_->log(11).data, all);
  EXPECT_GT(coordinator_->log(11).chunks, 1);
  EXPECT_TRUE(coordinator_->log(11).end);

  SendOpenLog(12, 0, true, 100'000);
  ASSERT_TRUE(coordinator_->WaitForLog(12, finished));
  EXPECT_EQ(coordinator_->log(12).data, all.substr(100'000));
  EXPECT_EQ(coordinator_->log(12).first_offset, 100'000u);
  EXPECT_TRUE(coordinator_->log(12).end);

  SendOpenLog(13, 0, false, 0, 3);
  ASSERT_TRUE(coordinator_->WaitForLog(13, finished));
  EXPECT_EQ(coordinator_->log(13).data, "19998\n19999\n20000\n");

  SendOpenLog(14, 7, false);
  v1::WorkerMessage refusal;
  ASSERT_TRUE(coordinator_->WaitFor(
      [](const v1::WorkerMessage& m) { return m.has_log_unavailable(); }, &refusal));
  EXPECT_EQ(refusal.log_unavailable().transfer(), 14u);
  EXPECT_EQ(refusal.log_unavailable().code(), static_cast<int>(absl::StatusCode::kNotFound));
}

TEST_F(AgentTest, FollowsLogUntilTheRankExits) {
  MakeFifo("go");
  StartBoth();
  coordinator_->Send(Launch("echo one; cat " + Path("go") + "; echo three"));
  WaitForRank(0, IsStarted);
  SendOpenLog(21, 0, true);
  ASSERT_TRUE(coordinator_->WaitForLog(
      21, [](const ScriptedCoordinator::Log& log) { return log.data == "one\n"; }));
  SendOpenLog(22, 0, false);
  ASSERT_TRUE(coordinator_->WaitForLog(
      22, [](const ScriptedCoordinator::Log& log) { return log.finished; }));
  EXPECT_FALSE(coordinator_->log(22).end);
  Unblock("go");
  ASSERT_TRUE(coordinator_->WaitForLog(
      21, [](const ScriptedCoordinator::Log& log) { return log.finished; }));
  EXPECT_EQ(coordinator_->log(21).data, "one\ngo\nthree\n");
  EXPECT_TRUE(coordinator_->log(21).end);
}

// LogChunk.lines has the time of each line that starts in the log, whatever chunk it is in.
TEST_F(AgentTest, ServesTimesOfLines) {
  MakeFifo("go");
  const absl::Time begin = absl::Now();
  StartBoth();
  coordinator_->Send(Launch("seq 20000; cat " + Path("go") + "; printf 'half'"));
  WaitForRank(0, IsStarted);
  const std::string first = "19999\n20000\n";
  SendOpenLog(41, 0, true);
  ASSERT_TRUE(coordinator_->WaitForLog(
      41, [&](const ScriptedCoordinator::Log& log) { return absl::EndsWith(log.data, first); }));
  const absl::Time middle = absl::Now();
  Unblock("go");
  WaitForRank(0, IsExited);
  const auto finished = [](const ScriptedCoordinator::Log& log) { return log.finished; };
  ASSERT_TRUE(coordinator_->WaitForLog(41, finished));
  const ScriptedCoordinator::Log log = coordinator_->log(41);
  ASSERT_EQ(log.lines.size(), 20002u);
  int64_t last = absl::ToUnixMicros(begin);
  for (const v1::LineTime& line : log.lines) {
    EXPECT_TRUE(line.offset() == 0 || log.data[line.offset() - 1] == '\n') << line.offset();
    EXPECT_GE(line.unix_micros(), last);
    last = line.unix_micros();
  }
  EXPECT_EQ(log.data.substr(log.lines[20000].offset()), "go\nhalf");
  EXPECT_LE(log.lines[19999].unix_micros(), absl::ToUnixMicros(middle));
  EXPECT_GE(log.lines[20000].unix_micros(), absl::ToUnixMicros(middle));

  // From the middle of a line: the time of the next line.
  SendOpenLog(42, 0, false, 1);
  ASSERT_TRUE(coordinator_->WaitForLog(42, finished));
  EXPECT_EQ(coordinator_->log(42).lines.front().offset(), 2u);

  SendOpenLog(43, 0, false, 0, 0, middle);
  ASSERT_TRUE(coordinator_->WaitForLog(43, finished));
  EXPECT_EQ(coordinator_->log(43).data, "go\nhalf");
}

TEST_F(AgentTest, FollowsUnfinishedLines) {
  MakeFifo("go");
  StartBoth();
  coordinator_->Send(Launch("printf '10%%\\r20%%'; cat " + Path("go")));
  WaitForRank(0, IsStarted);
  SendOpenLog(51, 0, true);
  ASSERT_TRUE(coordinator_->WaitForLog(
      51, [](const ScriptedCoordinator::Log& log) { return log.data == "10%\r20%"; }));
  Unblock("go");
  WaitForRank(0, IsExited);
}

TEST_F(AgentTest, CancelsClosedLog) {
  StartBoth();
  coordinator_->Send(Launch("echo one; exec sleep 600"));
  WaitForRank(0, IsStarted);
  SendOpenLog(31, 0, true);
  ASSERT_TRUE(coordinator_->WaitForLog(
      31, [](const ScriptedCoordinator::Log& log) { return log.data == "one\n"; }));
  v1::CoordinatorMessage message;
  message.mutable_close_log()->set_transfer(31);
  coordinator_->Send(message);
  ASSERT_TRUE(coordinator_->WaitForLog(
      31, [](const ScriptedCoordinator::Log& log) { return log.finished; }));
  EXPECT_TRUE(coordinator_->log(31).cancelled);
  EXPECT_FALSE(coordinator_->log(31).end);
  SendStop(absl::ZeroDuration());
  WaitForRank(0, IsExited);
}

TEST_F(AgentTest, RetriesIfNameIsTaken) {
  coordinator_->Refuse(grpc::ALREADY_EXISTS, "a live worker has this name");
  StartAgent();
  ASSERT_TRUE(coordinator_->WaitForSessions(2));
  coordinator_->Refuse(0, "");
  EXPECT_TRUE(coordinator_->WaitFor(
      [](const v1::WorkerMessage& message) { return message.has_heartbeat(); }));
  EXPECT_FALSE(refused_.HasBeenNotified());
}

TEST_F(AgentTest, DoesNotRetryOtherProtocolVersion) {
  coordinator_->Refuse(grpc::FAILED_PRECONDITION, "protocol 1, and this coordinator speaks 2");
  StartAgent();
  ASSERT_TRUE(refused_.WaitForNotificationWithTimeout(kPatience));
  EXPECT_THAT(std::string(refusal_.message()), HasSubstr("speaks 2"));
  EXPECT_EQ(coordinator_->sessions(), 1);
}

TEST_F(AgentTest, RestoresSocketThatAJobRemoved) {
  StartBoth();
  coordinator_->Send(Launch("rm \"${MUSTER_WORKER_SOCKET#unix:}\""));
  EXPECT_EQ(WaitForRank(0, IsExited).exit().exit_code(), 0);
  // As the ranks of the next job.
  const auto stub = v1::RankService::NewStub(grpc::CreateChannel(
      "unix:" + Path("data/run/rank.sock"), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  context.set_deadline(absl::ToChronoTime(absl::Now() + kPatience));
  v1::ReportResponse response;
  EXPECT_EQ(stub->Report(&context, v1::ReportRequest(), &response).error_code(), grpc::ABORTED);
  EXPECT_FALSE(refused_.HasBeenNotified());
}

TEST_F(AgentTest, EndsIfSocketCannotBeRestored) {
  StartBoth();
  std::filesystem::remove_all(Path("data/run"));
  std::ofstream(Path("data/run")) << "not a folder";
  ASSERT_TRUE(refused_.WaitForNotificationWithTimeout(kPatience));
  EXPECT_THAT(std::string(refusal_.message()),
              HasSubstr("no rank can join, because the ranks' socket cannot be restored"));
}

TEST_F(AgentTest, StopRanksStopsAllAndReportsDone) {
  StartBoth();
  coordinator_->Send(Launch("exec sleep 600", 2));
  WaitForRank(0, IsStarted);
  WaitForRank(1, IsStarted);
  absl::Notification done;
  agent_->StopRanks(std::nullopt, [&done] { done.Notify(); });
  ASSERT_TRUE(done.WaitForNotificationWithTimeout(kPatience));
  agent_.reset();
  EXPECT_EQ(WaitForRank(0, IsExited).exit().signal(), SIGTERM);
  EXPECT_EQ(WaitForRank(1, IsExited).exit().signal(), SIGTERM);
  EXPECT_EQ(shim::KillByEnvironment(cookie_), 0u);
}

TEST_F(AgentTest, ServesHealthAndMetrics) {
  StartBoth();
  ASSERT_TRUE(coordinator_->WaitFor(
      [](const v1::WorkerMessage& message) { return message.has_heartbeat(); }));
  coordinator_->Send(Launch("exec sleep 600", 2));
  WaitForRank(0, IsStarted);
  WaitForRank(1, IsStarted);
  EXPECT_THAT(Get("/livez"), StartsWith("ok"));
  EXPECT_THAT(Get("/readyz?verbose"), HasSubstr("[+]session ok"));
  EXPECT_THAT(Get("/metrics"), AllOf(HasSubstr("muster_worker_slots{kind=\"cpu\"} 4"),
                                     HasSubstr("muster_worker_slots_allocated{kind=\"cpu\"} 2"),
                                     HasSubstr("muster_worker_session_up 1"),
                                     HasSubstr("muster_worker_ranks{phase=\"STARTED\"} 2")));
  EXPECT_THAT(metrics::UnknownFamilies(Get("/metrics"), kWorkerFamilies), IsEmpty());
  SendStop(absl::ZeroDuration());
  WaitForRank(0, IsExited);
  WaitForRank(1, IsExited);
}

TEST_F(AgentTest, RejectsSecondWorkerOnTheSameDirectory) {
  StartBoth();
  const auto second = Agent::Start(Options(), [](const absl::Status&) {});
  EXPECT_TRUE(absl::IsFailedPrecondition(second.status())) << second.status();
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("another worker"));
}

TEST_F(AgentTest, RejectsTooLongDataDirectory) {
  AgentOptions options = Options();
  options.data_dir += "/" + std::string(100, 'x');
  const auto agent = Agent::Start(options, [](const absl::Status&) {});
  EXPECT_TRUE(absl::IsInvalidArgument(agent.status())) << agent.status();
  EXPECT_THAT(std::string(agent.status().message()), HasSubstr("too long for the unix socket"));
}

TEST_F(AgentTest, LaunchesQuickly) {
  StartBoth();
  const absl::Time start = absl::Now();
  coordinator_->Send(Launch("date +%s%N"));
  WaitForRank(0, IsExited);
  int64_t nanoseconds = 0;
  ASSERT_TRUE(absl::SimpleAtoi(
      Read(directory_ + "/data/jobs/job-1/logs/generation-1/rank-0000.stdout"), &nanoseconds));
  const absl::Duration latency = absl::FromUnixNanos(nanoseconds) - start;
  RecordProperty("launch_to_main_ms", static_cast<int>(absl::ToInt64Milliseconds(latency)));
  EXPECT_LT(latency, absl::Milliseconds(500));
}

}  // namespace
}  // namespace muster::agent
