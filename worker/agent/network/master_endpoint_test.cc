#include "worker/agent/network/master_endpoint.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <set>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::agent {
namespace {

using ::testing::HasSubstr;

// A server's socket on 0.0.0.0 or 127.0.0.1; -1 when it cannot be had.
int Bind(uint32_t address, uint16_t port, bool reuse) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = reuse ? 1 : 0;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in name = {};
  name.sin_family = AF_INET;
  name.sin_port = htons(port);
  name.sin_addr.s_addr = htonl(address);
  if (bind(fd, reinterpret_cast<const sockaddr*>(&name), sizeof(name)) == 0) return fd;
  close(fd);
  return -1;
}

uint16_t PortOf(int fd) {
  sockaddr_in name = {};
  socklen_t size = sizeof(name);
  getsockname(fd, reinterpret_cast<sockaddr*>(&name), &size);
  return ntohs(name.sin_port);
}

TEST(HeldPortTest, ProgramThatIsToldThePortListensOnIt) {
  for (const uint32_t address : {INADDR_ANY, INADDR_LOOPBACK}) {
    const auto held = HeldPort::Hold(0);
    ASSERT_TRUE(held.ok()) << held.status();
    const int server = Bind(address, (*held)->port(), true);
    ASSERT_GE(server, 0);
    EXPECT_EQ(listen(server, 4), 0);
    close(server);
  }
}

TEST(HeldPortTest, NobodyElseGetsIt) {
  std::set<uint16_t> held;
  std::vector<std::unique_ptr<HeldPort>> ports;
  for (int i = 0; i < 200; ++i) {
    auto port = HeldPort::Hold(0);
    ASSERT_TRUE(port.ok()) << port.status();
    EXPECT_TRUE(held.insert((*port)->port()).second);
    ports.push_back(*std::move(port));
  }
  std::vector<int> others;
  for (int i = 0; i < 500; ++i) {
    const int any = Bind(i % 2 == 0 ? INADDR_ANY : INADDR_LOOPBACK, 0, i % 3 == 0);
    ASSERT_GE(any, 0);
    EXPECT_EQ(held.count(PortOf(any)), 0u);
    others.push_back(any);
  }
  for (const int fd : others) close(fd);
  // Nor who asks for it by number and shares with nobody.
  EXPECT_EQ(Bind(INADDR_ANY, *held.begin(), false), -1);
  EXPECT_EQ(Bind(INADDR_LOOPBACK, *held.begin(), false), -1);
}

TEST(HeldPortTest, IsHeldAgainUnlessItsProgramListens) {
  auto first = HeldPort::Hold(0);
  ASSERT_TRUE(first.ok());
  const uint16_t port = (*first)->port();
  first->reset();
  auto second = HeldPort::Hold(port);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ((*second)->port(), port);
  const int server = Bind(INADDR_ANY, port, true);
  ASSERT_EQ(listen(server, 4), 0);
  EXPECT_TRUE(absl::IsUnavailable(HeldPort::Hold(port).status()));
  close(server);
}

TEST(MasterEndpointTest, RoundTripsAndRefusesGarbage) {
  MasterEndpoint endpoint{{"fe80::1", 4711}, "boot/net:[1]"};
  const auto decoded = DecodeMasterEndpoint(EncodeMasterEndpoint(endpoint));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->address.host, "fe80::1");
  EXPECT_EQ(decoded->address.port, 4711);
  EXPECT_EQ(decoded->network, "boot/net:[1]");
  EXPECT_FALSE(DecodeMasterEndpoint("").ok());
  EXPECT_FALSE(DecodeMasterEndpoint("nonsense\n").ok());
}

TEST(MasterEndpointTest, LoopbackServesOneMachineOnly) {
  const MasterEndpoint loopback{{"127.0.0.1", 1}, "a"};
  const MasterEndpoint remote{{"10.0.0.1", 1}, "a"};
  EXPECT_TRUE(CheckReachable(loopback, "127.0.0.1", "a").ok());
  EXPECT_TRUE(CheckReachable(remote, "127.0.0.1", "a").ok());
  EXPECT_TRUE(CheckReachable(remote, "10.0.0.2", "b").ok());
  for (const char* own : {"127.0.0.1", "10.0.0.2"}) {
    const absl::Status status = CheckReachable(loopback, own, "b");
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("start its worker with --advertise"));
  }
  EXPECT_THAT(std::string(CheckReachable(remote, "127.0.0.1", "b").message()),
              HasSubstr("start this worker with --advertise"));
}

}  // namespace
}  // namespace muster::agent
