// Real connections to this machine.
#include "worker/agent/lease/refusal_probe.h"

#include <unistd.h>

#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/http/address.h"
#include "gtest/gtest.h"

namespace muster::agent {
namespace {

class RefusalProbeTest : public ::testing::Test {
 protected:
  RefusalProbeTest() {
    loop_.RunAndWait([this] { probe_.emplace(loop_); });
  }
  ~RefusalProbeTest() override {
    loop_.RunAndWait([this] { probe_.reset(); });
  }

  bool IsRefused(const std::string& address, absl::Duration patience = absl::Seconds(10)) {
    absl::Notification over;
    bool result = false;
    loop_.RunAndWait([&] {
      probe_->Start(address, patience, [&](bool refused) {
        result = refused;
        over.Notify();
      });
    });
    over.WaitForNotification();
    return result;
  }

  EventLoop loop_{"probe-test"};
  std::optional<RefusalProbe> probe_;
};

TEST_F(RefusalProbeTest, ClosedPortRefuses) {
  for (const std::string host : {"127.0.0.1", "::1"}) {
    const auto listening = Listen({host, 0});
    if (!listening.ok()) continue;  // no IPv6
    const bool v4 = host[0] == '1';
    const std::string address =
        absl::StrCat(v4 ? "ipv4:" : "ipv6:%5B", host, v4 ? ":" : "%5D:", listening->port);
    EXPECT_FALSE(IsRefused(address)) << "something listens on " << address;
    for (const int socket : listening->sockets) close(socket);
    EXPECT_TRUE(IsRefused(address)) << address;
  }
}

// A stopped process does not accept, but the kernel completes the handshake for it.
TEST_F(RefusalProbeTest, FullQueueIsNoRefusal) {
  const auto listening = Listen({"127.0.0.1", 0});
  ASSERT_TRUE(listening.ok());
  const std::string address = absl::StrCat("ipv4:127.0.0.1:", listening->port);
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(IsRefused(address, absl::Milliseconds(100)));
  for (const int socket : listening->sockets) close(socket);
}

TEST_F(RefusalProbeTest, OtherAddressesAreNoEvidence) {
  EXPECT_FALSE(IsRefused(""));
  EXPECT_FALSE(IsRefused("unix:/tmp/socket"));
  EXPECT_FALSE(IsRefused("127.0.0.1:1")) << "not as gRPC names a peer";
  EXPECT_FALSE(IsRefused("ipv4:localhost:1")) << "names are not resolved";
}

}  // namespace
}  // namespace muster::agent
