// Tests of the services that a worker provides to command jobs.
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/network/network.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/agent/generation/store/master_endpoint.h"
#include "worker/agent/testing/agent_fixture.h"

namespace muster::agent {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class CommandJobTest : public AgentTest {
 protected:
  std::string LogPath(uint32_t rank, const std::string& stream) const {
    return absl::StrCat(directory_, "/data/jobs/job-1/logs/generation-1/rank-000", rank, ".",
                        stream);
  }
  std::string LogOf(uint32_t rank, const std::string& stream) const {
    return Read(LogPath(rank, stream));
  }

  std::string Variable(const std::string& name) const {
    for (const absl::string_view line : absl::StrSplit(LogOf(0, "stdout"), '\n')) {
      const std::pair<absl::string_view, absl::string_view> parts =
          absl::StrSplit(line, absl::MaxSplits('=', 1));
      if (parts.first == name) return std::string(parts.second);
    }
    return "<none>";
  }

  v1::CoordinatorMessage LaunchOfTwoNodes(const std::string& script, uint32_t node_rank) {
    v1::CoordinatorMessage message = Launch(script);
    v1::Launch& launch = *message.mutable_launch();
    launch.set_world_size(2);
    launch.set_node_count(2);
    launch.set_node_rank(node_rank);
    launch.mutable_ranks(0)->set_rank(node_rank);
    return message;
  }

  void SendKey(const std::string& value) {
    v1::CoordinatorMessage message;
    v1::KeyValue& key = *message.mutable_key_value();
    key.set_job_id(kJob);
    key.set_generation(1);
    key.set_key(kMasterKey);
    key.set_value(value);
    coordinator_->Send(message);
  }

  static bool RequestsMaster(const v1::WorkerMessage& message) {
    return message.has_get_key() && message.get_key().key() == kMasterKey;
  }
};

// Whether the port is in use.
bool IsTaken(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in name = {};
  name.sin_family = AF_INET;
  name.sin_port = htons(static_cast<uint16_t>(port));
  const bool taken = bind(fd, reinterpret_cast<const sockaddr*>(&name), sizeof(name)) != 0;
  close(fd);
  return taken;
}

TEST_F(CommandJobTest, HoldsMasterPortThroughARestart) {
  MakeFifo("ready");
  MakeFifo("go");
  StartBoth();
  coordinator_->Send(Launch("env; echo x > " + Path("ready") + "; cat " + Path("go")));
  Read(Path("ready"));
  WaitForRank(0, IsStarted);
  agent_.reset();
  StartAgent();
  ASSERT_TRUE(coordinator_->WaitForSessions(2));
  EXPECT_EQ(Variable("MASTER_ADDR"), "127.0.0.1");
  EXPECT_EQ(Variable("GLOO_SOCKET_IFNAME"), InterfaceOf("127.0.0.1"));
  int port = 0;
  ASSERT_TRUE(absl::SimpleAtoi(Variable("MASTER_PORT"), &port));
  EXPECT_TRUE(IsTaken(port));
  Unblock("go");
  WaitForRank(0, IsExited);
  EXPECT_FALSE(IsTaken(port));
}

TEST_F(CommandJobTest, NodeRankZeroPublishesMasterEndpoint) {
  StartBoth();
  coordinator_->Send(LaunchOfTwoNodes("env", 0));
  v1::WorkerMessage put;
  ASSERT_TRUE(
      coordinator_->WaitFor([](const v1::WorkerMessage& m) { return m.has_put_key(); }, &put));
  EXPECT_EQ(put.put_key().key(), kMasterKey);
  const auto endpoint = DecodeMasterEndpoint(put.put_key().value());
  ASSERT_TRUE(endpoint.ok()) << endpoint.status();
  // Ranks of this node do not wait for other nodes.
  WaitForRank(0, IsExited);
  EXPECT_EQ(Variable("MASTER_ADDR"), endpoint->address.host);
  EXPECT_EQ(Variable("MASTER_PORT"), absl::StrCat(endpoint->address.port));
}

TEST_F(CommandJobTest, OtherNodesWaitForMasterEndpoint) {
  StartBoth();
  coordinator_->Send(LaunchOfTwoNodes("env", 1));
  ASSERT_TRUE(coordinator_->WaitFor(RequestsMaster));
  EXPECT_EQ(LogOf(1, "stdout"), "<none>");
  SendKey(EncodeMasterEndpoint({{"192.0.2.9", 4711}, NetworkIdentity()}));
  EXPECT_EQ(WaitForRank(1, IsExited).exit().exit_code(), 0);
  EXPECT_THAT(LogOf(1, "stdout"),
              AllOf(HasSubstr("MASTER_ADDR=192.0.2.9\n"), HasSubstr("MASTER_PORT=4711\n")));
}

TEST_F(CommandJobTest, StopEndsRanksThatWaitForMasterEndpoint) {
  StartBoth();
  coordinator_->Send(LaunchOfTwoNodes("env", 1));
  ASSERT_TRUE(coordinator_->WaitFor(RequestsMaster));
  SendStop(absl::Seconds(10));
  const v1::RankReport report = WaitForRank(1, IsExited);
  EXPECT_TRUE(report.exit().stopped_by_worker());
  EXPECT_FALSE(report.exit().has_failure());
}

TEST_F(CommandJobTest, RejectsLoopbackOfAnotherMachineWithRemedy) {
  StartBoth();
  coordinator_->Send(LaunchOfTwoNodes("env", 1));
  ASSERT_TRUE(coordinator_->WaitFor(RequestsMaster));
  SendKey(EncodeMasterEndpoint({{"127.0.0.1", 4711}, "another boot/another network"}));
  const v1::RankReport report = WaitForRank(1, IsExited);
  EXPECT_EQ(report.exit().exit_code(), 126);
  EXPECT_THAT(report.exit().failure().message(), HasSubstr("--advertise=ADDR"));
  EXPECT_TRUE(report.exit().failure().not_retryable());
}

TEST_F(CommandJobTest, ReportsErrorFile) {
  StartBoth();
  coordinator_->Send(
      Launch("echo '{\"message\": {\"message\": \"ValueError: no such layer\", \"extraInfo\": "
             "{\"py_callstack\": \"Traceback: a\"}}}' > $TORCHELASTIC_ERROR_FILE; exit 1"));
  const v1::RankReport report = WaitForRank(0, IsExited);
  EXPECT_EQ(report.exit().failure().message(), "ValueError: no such layer");
  EXPECT_EQ(report.exit().stderr_tail(), "Traceback: a");
}

TEST_F(CommandJobTest, ReportsCheckpointDirectoryOfTheNode) {
  StartBoth();
  coordinator_->Send(Launch("env; touch $MUSTER_CHECKPOINT_DIR/written"));
  const v1::RankReport report = WaitForRank(0, IsExited);
  EXPECT_EQ(report.exit().exit_code(), 0);
  EXPECT_EQ(report.checkpoint().dir(), directory_ + "/data/jobs/job-1/checkpoint");
  EXPECT_EQ(report.checkpoint().node(), "node-a");
  EXPECT_FALSE(report.checkpoint().shared());
  EXPECT_EQ(Variable("MUSTER_CHECKPOINT_SHARED"), "0");
}

TEST_F(CommandJobTest, UsesCheckpointDirectoryOfTheLaunch) {
  StartBoth();
  v1::CoordinatorMessage message = Launch("env; touch $MUSTER_CHECKPOINT_DIR/written");
  message.mutable_launch()->set_checkpoint_dir(Path("shared"));
  coordinator_->Send(message);
  const v1::RankReport report = WaitForRank(0, IsExited);
  EXPECT_EQ(report.exit().exit_code(), 0);
  EXPECT_EQ(report.checkpoint().dir(), Path("shared"));
  EXPECT_TRUE(report.checkpoint().shared());
  EXPECT_EQ(report.checkpoint().node(), "");
  EXPECT_EQ(Variable("MUSTER_CHECKPOINT_DIR"), Path("shared"));
  EXPECT_EQ(Variable("MUSTER_CHECKPOINT_SHARED"), "1");
  EXPECT_TRUE(std::filesystem::exists(Path("shared/written")));
}

TEST_F(CommandJobTest, ReportsCheckpointDirectoryThatCannotBeMade) {
  StartBoth();
  v1::CoordinatorMessage message = Launch("exit 0");
  message.mutable_launch()->set_checkpoint_dir(Path("not-mounted/job"));
  coordinator_->Send(message);
  const v1::RankReport report = WaitForRank(0, IsExited);
  EXPECT_EQ(report.exit().exit_code(), 73);
  EXPECT_THAT(report.exit().failure().message(), HasSubstr(Path("not-mounted/job")));
  EXPECT_TRUE(report.exit().failure().not_retryable());
}

TEST_F(CommandJobTest, FollowsProgressFile) {
  MakeFifo("go");
  StartBoth();
  coordinator_->Send(Launch("echo step=3 loss=0.5 total_steps=9 >> $MUSTER_PROGRESS; cat " +
                            Path("go") + "; echo step=9 phase=done >> $MUSTER_PROGRESS"));
  ASSERT_TRUE(coordinator_->WaitForRank(
      kJob, 1, 0, [](const v1::RankReport& report) { return report.progress().step() == 3; }));
  Unblock("go");
  const v1::RankReport report = WaitForRank(0, IsExited);
  EXPECT_EQ(report.progress().step(), 9u);
  EXPECT_EQ(report.progress().loss(), 0.5);
  EXPECT_EQ(report.progress().phase(), "done");
}

TEST_F(CommandJobTest, WritesWaitsToTheLogsOfLiveRanks) {
  StartBoth();
  coordinator_->Send(Launch("[ $RANK = 1 ] && exit 0; until grep -qs muster: " +
                                LogPath(0, "stderr") + "; do sleep 0.01; done; echo mine >&2",
                            2));
  WaitForRank(1, IsExited);
  WaitForRank(0, IsStarted);
  v1::CoordinatorMessage message;
  v1::WaitNotice& notice = *message.mutable_wait_notice();
  notice.set_job_id(kJob);
  notice.set_generation(1);
  notice.mutable_wait()->set_what("rendezvous");
  notice.mutable_wait()->mutable_since()->set_seconds(7);
  v1::WaitedFor& missing = *notice.mutable_wait()->add_missing();
  missing.set_rank(17);
  missing.set_node("gpu-03");
  missing.set_reason("phase STARTED,\npid 4411");
  coordinator_->Send(message);
  WaitForRank(0, IsExited);
  EXPECT_EQ(LogOf(0, "stderr"), ("muster: rendezvous has waited 7.0 s for rank 17 (node "
                                 "gpu-03, phase STARTED, pid 4411)\nmine\n"));
  EXPECT_EQ(LogOf(1, "stderr"), "");
}

TEST_F(CommandJobTest, LeavingWorkerLetsTheCoordinatorStopItsRanks) {
  MakeFifo("ready");
  StartBoth();
  coordinator_->Send(
      Launch("trap 'exit 3' TERM; echo x > " + Path("ready") + "; while :; do sleep 0.01; done"));
  Read(Path("ready"));
  absl::Notification done;
  agent_->StopRanks(std::nullopt, [&done] { done.Notify(); });
  ASSERT_TRUE(coordinator_->WaitFor([](const v1::WorkerMessage& m) { return m.has_leaving(); }));
  EXPECT_FALSE(done.HasBeenNotified());
  // New launches are not accepted.
  coordinator_->Send(Launch("exit 9", 1, 2));
  SendStop(absl::Seconds(10));
  ASSERT_TRUE(done.WaitForNotificationWithTimeout(kPatience));
  EXPECT_EQ(WaitForRank(0, IsExited).exit().exit_code(), 3);
  EXPECT_FALSE(std::filesystem::exists(directory_ + "/data/jobs/job-1/generation-2"));
}

TEST_F(CommandJobTest, SecondStopRequestGivesNoGrace) {
  MakeFifo("ready");
  StartBoth();
  coordinator_->Send(
      Launch("trap '' TERM; echo x > " + Path("ready") + "; while :; do sleep 0.01; done"));
  Read(Path("ready"));
  absl::Notification done;
  agent_->StopRanks(std::nullopt, [] {});
  agent_->StopRanks(absl::ZeroDuration(), [&done] { done.Notify(); });
  ASSERT_TRUE(done.WaitForNotificationWithTimeout(kPatience));
  EXPECT_EQ(WaitForRank(0, IsExited).exit().signal(), SIGKILL);
}

TEST_F(CommandJobTest, ExplainsStopInTheLog) {
  MakeFifo("ready");
  StartBoth();
  coordinator_->Send(Launch("echo x > " + Path("ready") + "; exec sleep 600"));
  Read(Path("ready"));
  SendStop(absl::Seconds(10));
  EXPECT_EQ(WaitForRank(0, IsExited).exit().stderr_tail(), "");
  EXPECT_EQ(LogOf(0, "stderr"), "muster: stopping: CancelledByUser\n");
}

TEST_F(CommandJobTest, ReportsAndInspectsSilentRanks) {
  MakeFifo("go");
  StartBoth();
  v1::CoordinatorMessage launch =
      Launch("echo ready; read line < " + Path("go") + "; echo again; exec sleep 600");
  *launch.mutable_launch()->mutable_spec()->mutable_hang_timeout() = ToProto(absl::Seconds(2));
  coordinator_->Send(launch);
  const auto silent = [](const v1::RankReport& report) {
    return FromProto(report.silence()) > absl::ZeroDuration();
  };
  const absl::Duration first = FromProto(WaitForRank(0, silent).silence());
  EXPECT_GE(first, absl::Milliseconds(500));
  // A new session receives the present silence.
  coordinator_->BreakSession();
  ASSERT_TRUE(coordinator_->WaitForSessions(2));
  ASSERT_EQ(coordinator_->hello().inventory_size(), 1);
  EXPECT_GE(FromProto(coordinator_->hello().inventory(0).ranks(0).silence()), first);

  v1::CoordinatorMessage inspect;
  inspect.mutable_inspect()->set_job_id(kJob);
  inspect.mutable_inspect()->set_generation(1);
  coordinator_->Send(inspect);
  v1::WorkerMessage found;
  ASSERT_TRUE(coordinator_->WaitFor(
      [](const v1::WorkerMessage& message) { return message.has_inspection(); }, &found));
  EXPECT_EQ(found.inspection().job_id(), kJob);
  EXPECT_EQ(found.inspection().generation(), 1u);
  ASSERT_EQ(found.inspection().ranks_size(), 1);
  EXPECT_EQ(found.inspection().ranks(0).state(), "sleeping");
  EXPECT_GE(FromProto(found.inspection().ranks(0).silence()), first);

  Unblock("go");
  WaitForRank(0, [](const v1::RankReport& report) {
    return report.has_silence() && FromProto(report.silence()) == absl::ZeroDuration();
  });
  SendStop(absl::ZeroDuration());
  WaitForRank(0, IsExited);
}

TEST_F(CommandJobTest, ProgressEndsSilence) {
  MakeFifo("go");
  StartBoth();
  v1::CoordinatorMessage launch =
      Launch("echo ready; read line < " + Path("go") +
             "; while :; do echo step=1 >> $MUSTER_PROGRESS; sleep 0.1; done");
  *launch.mutable_launch()->mutable_spec()->mutable_hang_timeout() = ToProto(absl::Seconds(4));
  coordinator_->Send(launch);
  WaitForRank(0, [](const v1::RankReport& report) {
    return FromProto(report.silence()) > absl::ZeroDuration();
  });
  Unblock("go");
  WaitForRank(0, [](const v1::RankReport& report) {
    return report.has_silence() && FromProto(report.silence()) == absl::ZeroDuration();
  });
  SendStop(absl::ZeroDuration());
  WaitForRank(0, IsExited);
}

TEST_F(CommandJobTest, PrintsStacksOfHungRanks) {
  MakeFifo("ready");
  StartBoth();
  coordinator_->Send(Launch("exec /usr/bin/python3 -c \"import time; open('" + Path("ready") +
                            "', 'w').write('x'); time.sleep(600)\""));
  Read(Path("ready"));
  v1::CoordinatorMessage message;
  message.mutable_stop()->set_job_id(kJob);
  message.mutable_stop()->set_generation(1);
  *message.mutable_stop()->mutable_grace_period() = ToProto(absl::Seconds(20));
  message.mutable_stop()->set_reason("RankHung");
  message.mutable_stop()->set_dump_stacks(true);
  coordinator_->Send(message);
  EXPECT_EQ(WaitForRank(0, IsExited).exit().signal(), SIGABRT);
  EXPECT_THAT(LogOf(0, "stderr"), HasSubstr("Fatal Python error: Aborted"));
}

TEST_F(CommandJobTest, DividesCpusAmongSlots) {
  cpu_set_t mine;
  ASSERT_EQ(sched_getaffinity(0, sizeof(mine), &mine), 0);
  if (CPU_COUNT(&mine) < 2) GTEST_SKIP() << "one CPU cannot be divided";
  AgentOptions options = Options();
  options.devices.slots = 2;
  options.pin_cpus = true;
  auto agent = Agent::Start(options, [](const absl::Status&) {});
  ASSERT_TRUE(agent.ok()) << agent.status();
  agent_ = *std::move(agent);
  ASSERT_TRUE(coordinator_->WaitForSessions(1));
  coordinator_->Send(Launch("env -u OMP_NUM_THREADS nproc; taskset -p $$ | sed s:.*mask::", 2));
  for (const uint32_t rank : {0, 1}) WaitForRank(rank, IsExited);
  int cpus = 0;
  for (const uint32_t rank : {0, 1}) {
    int own = 0;
    ASSERT_TRUE(
        absl::SimpleAtoi(LogOf(rank, "stdout").substr(0, LogOf(rank, "stdout").find('\n')), &own));
    cpus += own;
  }
  EXPECT_EQ(cpus, CPU_COUNT(&mine));
  EXPECT_NE(LogOf(0, "stdout"), LogOf(1, "stdout"));
}

TEST_F(CommandJobTest, DoesNotBindRankThatNeedsMoreCpus) {
  cpu_set_t mine;
  ASSERT_EQ(sched_getaffinity(0, sizeof(mine), &mine), 0);
  AgentOptions options = Options();
  options.devices.slots = 1;
  options.pin_cpus = true;
  auto agent = Agent::Start(options, [](const absl::Status&) {});
  ASSERT_TRUE(agent.ok()) << agent.status();
  agent_ = *std::move(agent);
  ASSERT_TRUE(coordinator_->WaitForSessions(1));
  v1::CoordinatorMessage message = Launch("env -u OMP_NUM_THREADS nproc");
  message.mutable_launch()->mutable_spec()->mutable_resources()->set_threads_per_rank(4096);
  coordinator_->Send(message);
  WaitForRank(0, IsExited);
  EXPECT_EQ(LogOf(0, "stdout"), absl::StrCat(CPU_COUNT(&mine), "\n"));
}

TEST_F(CommandJobTest, ReportsDeletedLog) {
  StartBoth();
  SendOpenLog(14, 7, false);
  v1::WorkerMessage refusal;
  ASSERT_TRUE(coordinator_->WaitFor(
      [](const v1::WorkerMessage& m) { return m.has_log_unavailable(); }, &refusal));
  EXPECT_EQ(refusal.log_unavailable().code(), static_cast<int>(absl::StatusCode::kNotFound));
  EXPECT_THAT(refusal.log_unavailable().message(),
              HasSubstr("kept for 7 days and 10GiB (--keep-logs"));
}

TEST_F(CommandJobTest, RunsInPwdWithPlaceholdersReplaced) {
  StartBoth();
  v1::CoordinatorMessage message = Launch("");
  v1::JobSpec& spec = *message.mutable_launch()->mutable_spec();
  spec.clear_command();
  for (const char* word : {"/usr/bin/env", "PLACE={node}/{rank}", "env"}) spec.add_command(word);
  coordinator_->Send(message);
  WaitForRank(0, IsExited);
  EXPECT_EQ(Variable("PWD"), directory_ + "/data/jobs/job-1/work/rank-0000");
  EXPECT_EQ(Variable("PLACE"), "node-a/0");
}

// The scripted coordinator does not serve files.
TEST_F(CommandJobTest, ReportsFilesThatCannotBePlaced) {
  StartBoth();
  v1::CoordinatorMessage message = Launch("true", /*ranks=*/2);
  v1::FileSpec& file = *message.mutable_launch()->mutable_spec()->add_files();
  file.set_path("conf/a.yaml");
  file.set_sha256(std::string(64, 'a'));
  coordinator_->Send(message);
  for (const uint32_t rank : {0, 1}) {
    const v1::RankReport report = WaitForRank(rank, IsExited);
    EXPECT_THAT(report.exit().failure().message(), HasSubstr("files: conf/a.yaml: "));
    EXPECT_EQ(report.pid(), 0);
  }
}

}  // namespace
}  // namespace muster::agent
