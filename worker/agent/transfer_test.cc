// Execs and copies of an agent with real shims and processes and a scripted coordinator.
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "gmock/gmock.h"
#include "worker/agent/testing/agent_fixture.h"
#include "worker/agent/testing/scripted_coordinator.h"

namespace muster::agent {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using Stream = ScriptedCoordinator::Stream;

bool HasEnded(const Stream& stream) { return stream.finished; }

class TransferTest : public AgentTest {
 protected:
  void SetUp() override {
    AgentTest::SetUp();
    signal(SIGPIPE, SIG_IGN);  // as in the worker
    StartBoth();
    MakeFifo("end");
    coordinator_->Send(Launch("trap '' TERM; cat " + Path("end")));
    WaitForRank(0, IsStarted);
  }

  void SendExec(uint64_t transfer, const std::vector<std::string>& command, bool terminal = false,
                uint32_t rank = 0) {
    v1::CoordinatorMessage message;
    v1::OpenExec& open = *message.mutable_open_exec();
    open.set_transfer(transfer);
    open.set_job_id(kJob);
    open.set_generation(1);
    open.mutable_start()->set_rank(rank);
    open.mutable_start()->set_terminal(terminal);
    open.mutable_start()->set_term("xterm-test");
    open.mutable_start()->mutable_command()->Assign(command.begin(), command.end());
    coordinator_->Send(message);
  }
  void SendShell(uint64_t transfer, const std::string& script, bool terminal = false) {
    SendExec(transfer, {"/bin/sh", "-c", script}, terminal);
  }
  void SendCopy(uint64_t transfer, const std::string& path, uint32_t rank = 0) {
    v1::CoordinatorMessage message;
    v1::OpenFiles& open = *message.mutable_open_files();
    open.set_transfer(transfer);
    open.mutable_request()->set_job_id(kJob);
    open.mutable_request()->set_generation(1);
    open.mutable_request()->set_rank(rank);
    open.mutable_request()->set_path(path);
    coordinator_->Send(message);
  }
  void Type(uint64_t transfer, const std::string& data) {
    v1::ExecInput input;
    input.set_stdin_data(data);
    coordinator_->SendInput(transfer, input);
  }
  Stream WaitFor(uint64_t transfer, const std::function<bool(const Stream&)>& predicate) {
    Stream found;
    EXPECT_TRUE(coordinator_->WaitForStream(transfer, predicate, &found));
    return found;
  }
  v1::TransferUnavailable WaitForRefusal(uint64_t transfer) {
    v1::WorkerMessage found;
    EXPECT_TRUE(coordinator_->WaitFor(
        [transfer](const v1::WorkerMessage& message) {
          return message.transfer_unavailable().transfer() == transfer;
        },
        &found));
    return found.transfer_unavailable();
  }
  // Waits until no process has `entry` in its environment, without killing any.
  static bool WaitUntilGone(pid_t pid) {
    const absl::Time deadline = absl::Now() + kPatience;
    while (kill(pid, 0) == 0 && absl::Now() < deadline) sched_yield();
    return kill(pid, 0) != 0;
  }
  std::string Work() const { return Path("data/jobs/job-1/work/rank-0000"); }
};

TEST_F(TransferTest, ExecRunsBesideTheRank) {
  SendShell(1, "echo $RANK $MUSTER_JOB_ID; pwd; echo problem >&2; exit 7");
  const Stream stream = WaitFor(1, HasEnded);
  EXPECT_EQ(stream.out, "0 job-1\n" + Work() + "\n");
  EXPECT_EQ(stream.err, "problem\n");
  EXPECT_EQ(stream.exit_code, 7);
  EXPECT_FALSE(stream.cancelled);
}

TEST_F(TransferTest, ExecReportsSignalsAndMissingPrograms) {
  SendShell(1, "kill -SEGV $$");
  EXPECT_EQ(WaitFor(1, HasEnded).exit_code, 128 + SIGSEGV);
  SendExec(2, {"no-such-program"});
  const Stream missing = WaitFor(2, HasEnded);
  EXPECT_EQ(missing.exit_code, 127);
  EXPECT_EQ(missing.err, "muster exec: no-such-program: No such file or directory\n");
}

TEST_F(TransferTest, ExecRelaysStdinAndItsEnd) {
  SendExec(1, {"cat"});
  WaitFor(1, [](const Stream&) { return true; });
  std::string sent;
  for (int i = 0; i < 40; ++i) {
    const std::string block(limits::kLogChunkBytes, static_cast<char>('a' + i % 26));
    Type(1, block);
    sent += block;
  }
  v1::ExecInput end;
  end.set_stdin_end(true);
  coordinator_->SendInput(1, end);
  const Stream stream = WaitFor(1, HasEnded);
  EXPECT_TRUE(stream.out == sent) << stream.out.size() << " of " << sent.size() << " bytes";
  EXPECT_EQ(stream.exit_code, 0);
}

TEST_F(TransferTest, ExecPassesSignalsOn) {
  SendShell(1, "trap 'echo caught; exit 3' INT; echo ready; while :; do sleep 0.02; done");
  WaitFor(1, [](const Stream& stream) { return stream.out == "ready\n"; });
  v1::ExecInput interrupt;
  interrupt.set_signal(SIGINT);
  coordinator_->SendInput(1, interrupt);
  const Stream stream = WaitFor(1, HasEnded);
  EXPECT_EQ(stream.out, "ready\ncaught\n");
  EXPECT_EQ(stream.exit_code, 3);
}

TEST_F(TransferTest, ExecInATerminal) {
  SendShell(1, "test -t 0 && test -t 1 && echo $TERM; read line; stty size; echo got $line", true);
  WaitFor(1, [](const Stream& stream) { return stream.out == "xterm-test\r\n"; });
  v1::ExecInput size;
  size.mutable_size()->set_rows(33);
  size.mutable_size()->set_columns(101);
  coordinator_->SendInput(1, size);
  Type(1, "hello\r");
  const Stream stream = WaitFor(1, HasEnded);
  EXPECT_THAT(stream.out, HasSubstr("33 101\r\n"));
  EXPECT_THAT(stream.out, EndsWith("got hello\r\n"));
  EXPECT_EQ(stream.exit_code, 0);
}

TEST_F(TransferTest, InterruptKeyReachesTheCommandInATerminal) {
  // No program follows the output: dash loses a signal that arrives just before it executes one.
  SendShell(1, "echo ready; read line", true);
  WaitFor(1, [](const Stream& stream) { return stream.out == "ready\r\n"; });
  Type(1, "\x03");
  EXPECT_EQ(WaitFor(1, HasEnded).exit_code, 128 + SIGINT);
}

TEST_F(TransferTest, CommandAndItsChildrenAreKilledWithTheClient) {
  SendShell(1, "setsid sleep 600 & echo $!; wait");
  const Stream stream = WaitFor(1, [](const Stream& s) { return s.out.ends_with("\n"); });
  const pid_t child = std::stoi(stream.out);
  EXPECT_EQ(kill(child, 0), 0);
  coordinator_->BreakExec(1);
  EXPECT_TRUE(WaitUntilGone(child));
}

TEST_F(TransferTest, CommandIsKilledWithTheRank) {
  SendShell(1, "echo ready; sleep 600");
  WaitFor(1, [](const Stream& stream) { return stream.out == "ready\n"; });
  Unblock("end");
  EXPECT_EQ(WaitFor(1, HasEnded).exit_code, 128 + SIGKILL);
  WaitForRank(0, IsExited);
  SendShell(2, "true");
  const v1::TransferUnavailable refusal = WaitForRefusal(2);
  EXPECT_EQ(refusal.code(), static_cast<int>(absl::StatusCode::kFailedPrecondition));
  EXPECT_EQ(refusal.message(), "rank 0 of job job-1 does not run on node node-a");
}

TEST_F(TransferTest, CopySendsAnArchive) {
  std::ofstream(Work() + "/model.pt") << std::string(1 << 20, 'w');
  SendCopy(1, "model.pt");
  const Stream stream = WaitFor(1, HasEnded);
  EXPECT_FALSE(stream.cancelled);
  std::ofstream(Path("copy.tar"), std::ios::binary) << stream.out;
  ASSERT_EQ(std::system(absl::StrCat("tar -C ", directory_, " -xf ", Path("copy.tar")).c_str()), 0);
  EXPECT_EQ(Read(Path("model.pt")), std::string(1 << 20, 'w'));
}

TEST_F(TransferTest, CopyOfAMissingPathNamesNodeAndPath) {
  SendCopy(1, "nothing");
  const v1::TransferUnavailable refusal = WaitForRefusal(1);
  EXPECT_EQ(refusal.code(), static_cast<int>(absl::StatusCode::kNotFound));
  EXPECT_EQ(refusal.message(), "node node-a: " + Work() + "/nothing: No such file or directory");
}

TEST_F(TransferTest, RemovedJobIsDeletedOnceItHasEnded) {
  v1::CoordinatorMessage message;
  message.mutable_forget()->set_job_id(kJob);
  message.mutable_forget()->set_generation(1);
  message.mutable_forget()->set_delete_files(true);
  coordinator_->Send(message);  // refused: the rank runs
  SendShell(1, "exit 0");
  WaitFor(1, HasEnded);
  EXPECT_TRUE(std::filesystem::exists(Work()));
  Unblock("end");
  WaitForRank(0, IsExited);
  coordinator_->Send(message);
  const absl::Time deadline = absl::Now() + kPatience;
  while (std::filesystem::exists(Path("data/jobs/job-1")) && absl::Now() < deadline) sched_yield();
  EXPECT_FALSE(std::filesystem::exists(Path("data/jobs/job-1")));
}

}  // namespace
}  // namespace muster::agent
