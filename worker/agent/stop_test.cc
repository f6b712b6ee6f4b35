// Stops of ranks that do not end at once: their shim does not read, or their processes outlive
// SIGKILL. A process is made unkillable by a tracer, the test, that does not reap it.
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/agent/agent_fixture.h"
#include "worker/agent/scripted_coordinator.h"

namespace muster::agent {
namespace {

bool IsUnkillable(const v1::RankReport& report) { return report.unkillable(); }

pid_t ParentOf(pid_t pid) {
  std::ifstream stat(absl::StrCat("/proc/", pid, "/stat"));
  std::string number, name, state;
  pid_t parent = 0;
  stat >> number >> name >> state >> parent;
  return parent;
}

class StopTest : public AgentTest {
 protected:
  bool WaitForUnknown(uint64_t generation) {
    return coordinator_->WaitFor([generation](const v1::WorkerMessage& message) {
      return message.unknown_generation().job_id() == kJob &&
             message.unknown_generation().generation() == generation;
    });
  }
};

TEST_F(StopTest, UnknownGenerationIsReported) {
  StartBoth();
  SendStop(absl::ZeroDuration(), /*generation=*/7);
  EXPECT_TRUE(WaitForUnknown(7));
  v1::CoordinatorMessage world;
  world.mutable_world()->set_job_id(kJob);
  world.mutable_world()->set_generation(8);
  coordinator_->Send(world);
  EXPECT_TRUE(WaitForUnknown(8));
  v1::CoordinatorMessage inspect;
  inspect.mutable_inspect()->set_job_id(kJob);
  inspect.mutable_inspect()->set_generation(9);
  coordinator_->Send(inspect);
  EXPECT_TRUE(WaitForUnknown(9));
}

TEST_F(StopTest, RanksReceiveTheStopSignalOfTheirJob) {
  MakeFifo("ready");
  StartBoth();
  v1::CoordinatorMessage launch = Launch("trap 'echo saved; exit 5' USR1; echo x > " +
                                         Path("ready") + "; while :; do sleep 0.01; done");
  launch.mutable_launch()->mutable_spec()->set_stop_signal("SIGUSR1");
  coordinator_->Send(launch);
  WaitForRank(0, IsStarted);
  Read(Path("ready"));
  SendStop(absl::Seconds(20));
  const v1::ExitInfo exit = WaitForRank(0, IsExited).exit();
  EXPECT_EQ(exit.exit_code(), 5);
  EXPECT_TRUE(exit.stopped_by_worker());
}

// A worker that shuts down waits for ranks that use their grace period, beyond the time that it
// gives the coordinator to stop them.
TEST_F(StopTest, ShutdownWaitsForRanksThatSave) {
  MakeFifo("ready");
  MakeFifo("saving");
  MakeFifo("saved");
  StartBoth();
  coordinator_->Send(Launch("trap 'echo x > " + Path("saving") + "; cat " + Path("saved") +
                            "; exit 0' TERM; echo x > " + Path("ready") +
                            "; while :; do sleep 0.01; done"));
  WaitForRank(0, IsStarted);
  Read(Path("ready"));
  absl::Notification done;
  agent_->StopRanks(std::nullopt, [&done] { done.Notify(); });
  Read(Path("saving"));
  EXPECT_FALSE(done.HasBeenNotified());
  Unblock("saved");
  ASSERT_TRUE(done.WaitForNotificationWithTimeout(kPatience));
  EXPECT_EQ(WaitForRank(0, IsExited).exit().exit_code(), 0);
}

// A stop reaches a shim whose socket was full when it was sent.
TEST_F(StopTest, StopReachesShimThatDidNotRead) {
  StartBoth();
  coordinator_->Send(Launch("trap '' TERM; while :; do sleep 0.01; done"));
  const pid_t shim = ParentOf(static_cast<pid_t>(WaitForRank(0, IsStarted).pid()));
  ASSERT_GT(shim, 1);
  ASSERT_EQ(kill(shim, SIGSTOP), 0);
  v1::CoordinatorMessage message;
  v1::WaitNotice& notice = *message.mutable_wait_notice();
  notice.set_job_id(kJob);
  notice.set_generation(1);
  notice.mutable_wait()->set_what(std::string(4000, 'x'));
  notice.mutable_wait()->add_missing()->set_rank(0);
  for (int i = 0; i < 200; ++i) coordinator_->Send(message);
  SendStop(absl::ZeroDuration());
  SendStop(absl::ZeroDuration(), /*generation=*/7);
  ASSERT_TRUE(WaitForUnknown(7)) << "the worker has handled all messages";
  ASSERT_EQ(kill(shim, SIGCONT), 0);
  EXPECT_EQ(WaitForRank(0, IsExited).exit().signal(), SIGKILL);
}

TEST_F(StopTest, NextGenerationStartsBesideUnkillableRank) {
  StartBoth();
  coordinator_->Send(Launch("while :; do sleep 1000; done"));
  const auto pid = static_cast<pid_t>(WaitForRank(0, IsStarted).pid());
  if (ptrace(PTRACE_SEIZE, pid, nullptr, nullptr) != 0) {
    GTEST_SKIP() << "processes cannot be traced here: " << std::strerror(errno);
  }
  SendStop(absl::ZeroDuration());
  v1::CoordinatorMessage next = Launch("exit 3", 1, /*generation=*/2);
  next.mutable_launch()->mutable_ranks(0)->set_slots(0, 1);
  coordinator_->Send(next);
  const v1::RankReport report = WaitForRank(0, IsUnkillable);
  EXPECT_EQ(report.phase(), v1::STARTED);
  EXPECT_EQ(report.pid(), pid);
  EXPECT_EQ(WaitForRank(0, IsExited, /*generation=*/2).exit().exit_code(), 3);

  // The rank ends after all once its tracer reaps it.
  ASSERT_EQ(waitpid(pid, nullptr, __WALL), pid);
  const v1::RankReport ended = WaitForRank(0, IsExited);
  EXPECT_FALSE(ended.unkillable());
  EXPECT_EQ(ended.exit().signal(), SIGKILL);
}

}  // namespace
}  // namespace muster::agent
