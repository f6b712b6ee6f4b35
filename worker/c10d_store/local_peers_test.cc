#include "worker/c10d_store/local_peers.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::c10d_store {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

Endpoint Loopback(uint16_t port) {
  sockaddr_storage address = {};
  auto* const v4 = reinterpret_cast<sockaddr_in*>(&address);
  v4->sin_family = AF_INET;
  v4->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  v4->sin_port = htons(port);
  return Endpoint::Of(address);
}

TEST(LocalPeersTest, PrintsEndpoints) {
  EXPECT_EQ(Loopback(80).ToString(), "127.0.0.1:80");
  sockaddr_storage address = {};
  auto* const v6 = reinterpret_cast<sockaddr_in6*>(&address);
  v6->sin6_family = AF_INET6;
  v6->sin6_addr = in6addr_loopback;
  v6->sin6_port = htons(81);
  EXPECT_EQ(Endpoint::Of(address).ToString(), "[::1]:81");
}

TEST(LocalPeersTest, FindsInodes) {
  const std::string table =
      "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout "
      "inode\n"
      "   0: 0100007F:1F90 0100007F:1F91 01 00000000:00000000 00:00000000 00000000     0        0 "
      "123 1 0000000000000000 20 4 30 10 -1\n"
      "   1: 0100007F:1F91 0100007F:1F90 01 00000000:00000000 00:00000000 00000000     0        0 "
      "124 1 0000000000000000 20 4 30 10 -1\n"
      "   2: 0000000000000000FFFF00000100007F:1F92 0000000000000000FFFF00000100007F:1F91 01 "
      "00000000:00000000 00:00000000 00000000     0        0 125 1 0 20 4 30 10 -1\n"
      "garbage\n";
  EXPECT_THAT(FindInodes(table, {Loopback(8080), Loopback(8082)}, 8081),
              ElementsAre(Pair(123, Loopback(8080)), Pair(125, Loopback(8082))));
}

TEST(LocalPeersTest, FindsRankOfProcess) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_storage address = {};
  auto* const v4 = reinterpret_cast<sockaddr_in*>(&address);
  v4->sin_family = AF_INET;
  v4->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(*v4);
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(v4), size), 0);
  ASSERT_EQ(listen(listener, 4), 0);
  ASSERT_EQ(getsockname(listener, reinterpret_cast<sockaddr*>(v4), &size), 0);
  const uint16_t port = ntohs(v4->sin_port);
  const int client = socket(AF_INET, SOCK_STREAM, 0);
  ASSERT_EQ(connect(client, reinterpret_cast<sockaddr*>(v4), size), 0);
  sockaddr_storage peer = {};
  socklen_t peer_size = sizeof(peer);
  const int server = accept(listener, reinterpret_cast<sockaddr*>(&peer), &peer_size);
  ASSERT_GE(server, 0);

  // A process that has inherited the client's end, and whose environment is that of a rank.
  const std::string mark = "LOCAL_PEERS_TEST=" + std::to_string(getpid());
  std::string rank = "RANK=3";
  char* const environment[] = {rank.data(), const_cast<char*>(mark.c_str()), nullptr};
  char* const argv[] = {const_cast<char*>("sleep"), const_cast<char*>("60"), nullptr};
  pid_t pid = -1;
  ASSERT_EQ(posix_spawn(&pid, "/bin/sleep", nullptr, nullptr, argv, environment), 0);
  close(client);

  const Endpoint end = Endpoint::Of(peer);
  EXPECT_THAT(FindLocalRanks({end}, port, {mark}), ElementsAre(Pair(end, 3)));
  EXPECT_THAT(FindLocalRanks({end}, port, {"LOCAL_PEERS_TEST=other"}), IsEmpty());
  EXPECT_THAT(FindLocalRanks({end}, port + 1, {mark}), IsEmpty());
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  close(server);
  close(listener);
}

}  // namespace
}  // namespace muster::c10d_store
