// Tests of the agent's shutdown while the coordinator refuses its session or sends requests.
#include <grpcpp/support/status.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"
#include "worker/agent/testing/agent_fixture.h"

namespace muster::agent {
namespace {

// A client of the agent's HTTP server that sends no request: stopping the server takes up to two
// seconds.
class IdleClient {
 public:
  explicit IdleClient(const Address& address)
      : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in name = {};
    name.sin_family = AF_INET;
    name.sin_port = htons(address.port);
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&name), sizeof(name)), 0);
  }
  ~IdleClient() { close(fd_); }
  IdleClient(const IdleClient&) = delete;
  IdleClient& operator=(const IdleClient&) = delete;

 private:
  const int fd_;
};

TEST_F(AgentTest, StopsWhileItsSessionIsRefused) {
  StartBoth();
  coordinator_->Send(Launch("exec sleep 600"));
  WaitForRank(0, IsStarted);
  coordinator_->Refuse(grpc::INVALID_ARGUMENT, "a report is out of bounds");
  coordinator_->BreakSession();
  ASSERT_TRUE(coordinator_->WaitForSessions(2));
  // The agent reconnects every few hundred milliseconds, also while its HTTP server stops.
  const IdleClient client(agent_->http_address());
  absl::Notification done;
  agent_->StopRanks(std::nullopt, [&done] { done.Notify(); });
  ASSERT_TRUE(done.WaitForNotificationWithTimeout(kPatience));
  agent_.reset();
  EXPECT_EQ(shim::KillByEnvironment(cookie_), 0u);
}

TEST_F(AgentTest, StopsWhileItsJobRecordsAreRequested) {
  StartBoth();
  v1::CoordinatorMessage request;
  request.mutable_send_job_records();
  for (int i = 0; i < 1000; ++i) coordinator_->Send(request);
  agent_.reset();
}

}  // namespace
}  // namespace muster::agent
