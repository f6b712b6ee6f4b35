#include "worker/agent/generation/store/rank_locator.h"

#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "worker/agent/event_loop.h"
#include "worker/c10d_store/protocol.h"

namespace muster::agent {
namespace {

std::string Receive(int socket, size_t size) {
  std::string received(size, '\0');
  const ssize_t n = recv(socket, received.data(), size, MSG_WAITALL);
  received.resize(n < 0 ? 0 : static_cast<size_t>(n));
  return received;
}

// A rank of this node is connected to the store, which asks the worker for it.
TEST(RankLocatorTest, NamesRanksThatTheStoreAsksFor) {
  const int store = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  ASSERT_EQ(bind(store, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(store, 4), 0);
  ASSERT_EQ(getsockname(store, reinterpret_cast<sockaddr*>(&address), &size), 0);

  const int client = socket(AF_INET, SOCK_STREAM, 0);
  ASSERT_EQ(connect(client, reinterpret_cast<sockaddr*>(&address), size), 0);
  const std::string mark = absl::StrCat("RANK_LOCATOR_TEST=", getpid());
  std::string rank = "RANK=7";
  char* const environment[] = {rank.data(), const_cast<char*>(mark.c_str()), nullptr};
  char* const argv[] = {const_cast<char*>("sleep"), const_cast<char*>("60"), nullptr};
  pid_t pid = -1;
  ASSERT_EQ(posix_spawn(&pid, "/bin/sleep", nullptr, nullptr, argv, environment), 0);
  close(client);
  sockaddr_in peer = {};
  const int accepted = accept(store, reinterpret_cast<sockaddr*>(&peer), &size);
  ASSERT_GE(accepted, 0);

  EventLoop loop("locator-test");
  std::unique_ptr<RankLocator> locator;
  loop.RunAndWait([&] {
    locator = std::make_unique<RankLocator>(loop, Address{"127.0.0.1", ntohs(address.sin_port)},
                                            std::vector<std::string>{mark});
    locator->Tick();
  });
  const int worker = accept(store, nullptr, nullptr);
  ASSERT_GE(worker, 0);
  EXPECT_EQ(Receive(worker, c10d_store::kIntroduction.size()), c10d_store::kIntroduction);
  // It does not know the first of these ports.
  const uint16_t ports[] = {1, ntohs(peer.sin_port)};
  ASSERT_EQ(send(worker, ports, sizeof(ports), 0), static_cast<ssize_t>(sizeof(ports)));
  const std::string answer = c10d_store::EncodeNameRank(ports[1], 7);
  EXPECT_EQ(Receive(worker, answer.size()), answer);

  loop.RunAndWait([&] { locator.reset(); });
  EXPECT_EQ(Receive(worker, 1), "");
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  for (const int socket : {store, accepted, worker}) close(socket);
}

}  // namespace
}  // namespace muster::agent
