// Tests of hosted c10d stores with a real agent, shims and store processes.
#include "spec/hosted_store.h"

#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/agent/generation/store/master_endpoint.h"
#include "worker/agent/testing/agent_fixture.h"

namespace muster::agent {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Waits for the key "a" in the protocol of PyTorch 1.13, then for a file.
constexpr char kWaitForKey[] = R"(
  echo $MASTER_PORT > $AGENT_TEST/port.tmp && mv $AGENT_TEST/port.tmp $AGENT_TEST/port
  exec /bin/bash -c '
    exec 3<>/dev/tcp/$MASTER_ADDR/$MASTER_PORT
    printf "\005\001\0\0\0\0\0\0\0\002\0\0\0\0\0\0\0/a" >&3
    while [ ! -e $AGENT_TEST/go ]; do sleep 0.05; done')";

class HostedStoreTest : public AgentTest {
 protected:
  v1::CoordinatorMessage HostedLaunch(const std::string& script, uint32_t nodes = 1) {
    v1::CoordinatorMessage message = Launch(script);
    v1::Launch& launch = *message.mutable_launch();
    (*launch.mutable_spec()->mutable_env())[spec::kHostedStoreVariable] = "1";
    launch.set_world_size(nodes);
    launch.set_node_count(nodes);
    return message;
  }
  static bool ReportsWait(const v1::WorkerMessage& message) {
    return message.report().store_waits().waits_size() == 1;
  }
  v1::StoreWait AwaitWait() const {
    v1::WorkerMessage message;
    EXPECT_TRUE(coordinator_->WaitFor(ReportsWait, &message));
    return message.report().store_waits().waits(0);
  }
  // Whether a process listens on the port of the store; the worker only holds it.
  bool IsListening() const {
    int port = 0;
    EXPECT_TRUE(absl::SimpleAtoi(Read(Path("port")), &port));
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in name = {};
    name.sin_family = AF_INET;
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    name.sin_port = htons(static_cast<uint16_t>(port));
    const bool listening = connect(fd, reinterpret_cast<sockaddr*>(&name), sizeof(name)) == 0;
    close(fd);
    return listening;
  }
  void AwaitEndOfStore() const {
    while (IsListening()) sched_yield();
  }
  void SendForget() {
    v1::CoordinatorMessage message;
    message.mutable_forget()->set_job_id(kJob);
    message.mutable_forget()->set_generation(1);
    coordinator_->Send(message);
  }
};

TEST_F(HostedStoreTest, ReportsWaitsAndOutlivesTheWorker) {
  StartBoth();
  coordinator_->Send(HostedLaunch(kWaitForKey));
  const v1::StoreWait wait = AwaitWait();
  EXPECT_EQ(wait.what(), "c10d key \"a\" (awaited by rank 0)");
  EXPECT_EQ(wait.reason(), "any rank to set it; all ranks wait in the store");

  agent_.reset();
  EXPECT_TRUE(IsListening());
  StartAgent();
  ASSERT_TRUE(coordinator_->WaitForSessions(2));
  EXPECT_TRUE(coordinator_->WaitForCount(ReportsWait, 2)) << "the new worker reports it, too";
  SendStop(absl::ZeroDuration());
  WaitForRank(0, IsExited);
  AwaitEndOfStore();
}

TEST_F(HostedStoreTest, StaysForRanksOfOtherNodes) {
  StartBoth();
  coordinator_->Send(HostedLaunch(kWaitForKey, /*nodes=*/2));
  EXPECT_THAT(AwaitWait().missing(), ElementsAre(1));
  v1::WorkerMessage put;
  ASSERT_TRUE(coordinator_->WaitFor(
      [](const v1::WorkerMessage& m) { return m.put_key().key() == kMasterKey; }, &put));
  std::ofstream(Path("go")).close();
  WaitForRank(0, IsExited);
  EXPECT_TRUE(IsListening());
  SendForget();
  AwaitEndOfStore();
  const std::string directory = directory_ + "/data/jobs/job-1/generation-1";
  while (std::filesystem::exists(directory)) sched_yield();
}

TEST_F(HostedStoreTest, RanksDoNotStartWithoutIt) {
  AgentOptions options = Options();
  options.store_binary = "/no/such/muster-c10d-store";
  auto agent = Agent::Start(options, [](const absl::Status&) {});
  ASSERT_TRUE(agent.ok()) << agent.status();
  agent_ = *std::move(agent);
  ASSERT_TRUE(coordinator_->WaitForSessions(1));
  coordinator_->Send(HostedLaunch("touch $AGENT_TEST/started"));
  const v1::RankReport report = WaitForRank(0, IsExited);
  EXPECT_THAT(report.exit().failure().message(),
              AllOf(HasSubstr("the hosted c10d store has ended: "),
                    HasSubstr("/no/such/muster-c10d-store")));
  EXPECT_FALSE(std::filesystem::exists(Path("started")));
}

}  // namespace
}  // namespace muster::agent
