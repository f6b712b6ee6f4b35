// Stops of ranks that do not end at once: their shim does not read, or their processes outlive
// SIGKILL. A process is made unkillable by a tracer, the test, that does not reap it.
#include <grpcpp/grpcpp.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/muster/v1/rank.grpc.pb.h"
#include "worker/agent/testing/agent_fixture.h"
#include "worker/agent/testing/scripted_coordinator.h"

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

// A rank's Watch call.
class Watch {
 public:
  // `address`: "MUSTER_WORKER_SOCKET MUSTER_RANK_TOKEN" of the rank.
  Watch(const std::string& address, uint32_t rank) {
    const std::pair<std::string, std::string> words = absl::StrSplit(address, ' ');
    stub_ = v1::RankService::NewStub(
        grpc::CreateChannel(words.first, grpc::InsecureChannelCredentials()));
    v1::WatchRequest request;
    request.mutable_identity()->set_job_id(kJob);
    request.mutable_identity()->set_generation(1);
    request.mutable_identity()->set_rank(rank);
    request.mutable_identity()->set_token(words.second);
    reader_ = stub_->Watch(&context_, request);
  }
  ~Watch() { context_.TryCancel(); }
  // The next directive; KIND_UNSPECIFIED at the end of the stream.
  v1::Directive::Kind Next() {
    v1::Directive directive;
    return reader_->Read(&directive) ? directive.kind() : v1::Directive::KIND_UNSPECIFIED;
  }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<v1::RankService::Stub> stub_;
  std::unique_ptr<grpc::ClientReader<v1::Directive>> reader_;
};

class CheckpointDirectiveTest : public AgentTest {
 protected:
  // Starts two ranks that outlive a directive to stop, and returns how to reach the worker as each.
  std::vector<std::string> StartRanks() {
    for (const char* name : {"rank-0", "rank-1"}) MakeFifo(name);
    StartBoth();
    coordinator_->Send(Launch("trap '' TERM; echo $MUSTER_WORKER_SOCKET $MUSTER_RANK_TOKEN > " +
                                  Path("rank-$RANK") + "; while :; do sleep 0.01; done",
                              2));
    std::vector<std::string> addresses;
    for (const char* name : {"rank-0", "rank-1"}) {
      addresses.emplace_back(absl::StripAsciiWhitespace(Read(Path(name))));
    }
    return addresses;
  }

  void SendCheckpoint(uint64_t generation = 1) {
    v1::CoordinatorMessage message;
    message.mutable_checkpoint()->set_job_id(kJob);
    message.mutable_checkpoint()->set_generation(generation);
    coordinator_->Send(message);
  }

  // Waits until the worker has handled all messages so far.
  void AwaitHandled(uint64_t unknown_generation) {
    SendCheckpoint(unknown_generation);
    ASSERT_TRUE(coordinator_->WaitFor([unknown_generation](const v1::WorkerMessage& message) {
      return message.unknown_generation().generation() == unknown_generation;
    }));
  }
};

TEST_F(CheckpointDirectiveTest, ReachesRankZeroOnceAndNeverReplacesAStop) {
  const std::vector<std::string> addresses = StartRanks();
  Watch first(addresses[0], 0);
  Watch other_rank(addresses[1], 1);
  // A request before the worker has accepted the call is dropped.
  absl::Notification received;
  std::thread reader([&] {
    EXPECT_EQ(first.Next(), v1::Directive::CHECKPOINT);
    received.Notify();
  });
  do {
    SendCheckpoint();
  } while (!received.WaitForNotificationWithTimeout(absl::Milliseconds(20)));
  reader.join();
  AwaitHandled(7);

  Watch second(addresses[0], 0);
  SendStop(kPatience);
  EXPECT_EQ(second.Next(), v1::Directive::STOP) << "the checkpoint is not requested again";
  EXPECT_EQ(other_rank.Next(), v1::Directive::STOP) << "only rank 0 receives it";
  SendCheckpoint();
  AwaitHandled(8);
  Watch third(addresses[0], 0);
  EXPECT_EQ(third.Next(), v1::Directive::STOP);
  SendStop(absl::ZeroDuration());
  WaitForRank(0, IsExited);
  WaitForRank(1, IsExited);
  EXPECT_EQ(second.Next(), v1::Directive::KIND_UNSPECIFIED);
  EXPECT_EQ(third.Next(), v1::Directive::KIND_UNSPECIFIED);
}

}  // namespace

}  // namespace muster::agent
