#include "common/network/held_port.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <set>
#include <vector>

#include "gtest/gtest.h"

namespace muster {
namespace {

// A socket bound to 0.0.0.0 or 127.0.0.1; -1 on failure.
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

TEST(HeldPortTest, LetsAServerListen) {
  for (const uint32_t address : {INADDR_ANY, INADDR_LOOPBACK}) {
    const auto held = HeldPort::Hold(0);
    ASSERT_TRUE(held.ok()) << held.status();
    const int server = Bind(address, (*held)->port(), true);
    ASSERT_GE(server, 0);
    EXPECT_EQ(listen(server, 4), 0);
    close(server);
  }
}

TEST(HeldPortTest, IsNotAssignedToOtherSockets) {
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
  // A socket without SO_REUSEADDR cannot bind the port by number, either.
  EXPECT_EQ(Bind(INADDR_ANY, *held.begin(), false), -1);
  EXPECT_EQ(Bind(INADDR_LOOPBACK, *held.begin(), false), -1);
}

TEST(HeldPortTest, CanBeHeldAgainUnlessAServerListens) {
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

}  // namespace
}  // namespace muster
