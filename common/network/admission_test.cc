#include "common/network/admission.h"

#include <arpa/inet.h>
#include <glog/logging.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace muster {
namespace {

class AdmissionTest : public ::testing::Test, public google::LogSink {
 protected:
  struct Client {
    int fd;
    std::string peer;  // as gRPC writes it
  };

  AdmissionTest() {
    sockaddr_in any = {};
    any.sin_family = AF_INET;
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&any), sizeof(any)), 0);
    EXPECT_EQ(listen(listener_, SOMAXCONN), 0);
    google::AddLogSink(this);
  }
  ~AdmissionTest() override {
    google::RemoveLogSink(this);
    for (const int fd : clients_) close(fd);
    for (const int fd : admitted_) close(fd);
    close(listener_);
  }
  void send(google::LogSeverity /*severity*/, const char* /*path*/, const char* /*file*/,
            int /*line*/, const struct ::tm* /*time*/, const char* message, size_t size) override {
    log_.emplace_back(message, size);
  }

  // Connects from an address of this machine and gives the connection to `admission_`.
  Client Connect(const std::string& from = "127.0.0.1") {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in name = {};
    name.sin_family = AF_INET;
    inet_pton(AF_INET, from.c_str(), &name.sin_addr);
    EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&name), sizeof(name)), 0);
    sockaddr_in server = {};
    socklen_t size = sizeof(server);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&server), &size);
    server.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&server), sizeof(server)), 0);
    getsockname(fd, reinterpret_cast<sockaddr*>(&name), &size);
    clients_.push_back(fd);
    admission_.OnConnection(listener_, accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC));
    return {fd, absl::StrCat("ipv4:", from, ":", ntohs(name.sin_port))};
  }

  // Whether the server's side has closed the connection.
  static bool IsClosed(const Client& client) {
    char byte = 0;
    const ssize_t received = recv(client.fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK);
    return received == 0 || (received < 0 && errno != EAGAIN);
  }

  void Advance(absl::Duration duration) {
    now_ = now_ + duration;
    admission_.Update();
  }

  void MakeCalls(const Client& client, int calls) {
    for (int i = 0; i < calls; ++i) admission_.OnCall(client.peer);
  }

  const int listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  std::vector<int> clients_;
  std::vector<int> admitted_;
  std::vector<std::string> log_;
  SteadyTime now_ = SteadyTime(absl::Hours(1));
  Admission admission_{[this](int /*socket*/, int connection) { admitted_.push_back(connection); },
                       [this] { return now_; }};
};

TEST_F(AdmissionTest, AdmitsAThousandClientsOfAnAddressThatAuthenticate) {
  std::vector<Client> clients;
  for (int i = 0; i < 1000; ++i) clients.push_back(Connect());
  EXPECT_EQ(admitted_.size(), Admission::kStrangersPerAddress);
  for (const Client& client : clients) {
    admission_.OnCall(client.peer);
    admission_.OnAuthenticated(client.peer);
    admission_.Update();
  }
  EXPECT_EQ(admitted_.size(), clients.size());
  EXPECT_FALSE(admission_.Update()) << "strangers are left";
  for (const Client& client : clients) EXPECT_FALSE(IsClosed(client)) << client.peer;
  EXPECT_TRUE(log_.empty());
}

TEST_F(AdmissionTest, RefusesAnAddressThatExceedsItsBudgetOfCalls) {
  const Client authenticated = Connect();
  admission_.OnAuthenticated(authenticated.peer);
  const Client other = Connect("127.0.0.3");
  const Client idle = Connect();
  const Client attacker = Connect();
  MakeCalls(authenticated, 2 * Admission::kBudget);
  MakeCalls(attacker, Admission::kBudget - 2);  // there are two strangers
  EXPECT_FALSE(IsClosed(attacker));
  MakeCalls(attacker, 1);
  EXPECT_TRUE(IsClosed(attacker));
  EXPECT_TRUE(IsClosed(idle)) << "another stranger of the address";
  EXPECT_TRUE(IsClosed(Connect()));
  EXPECT_FALSE(IsClosed(authenticated));
  EXPECT_FALSE(IsClosed(other));
  EXPECT_FALSE(IsClosed(Connect("127.0.0.3")));
  Advance(absl::Seconds(9));
  EXPECT_TRUE(IsClosed(Connect()));
  Advance(absl::Seconds(1));
  EXPECT_FALSE(IsClosed(Connect()));
}

TEST_F(AdmissionTest, LogsAnAddressOnce) {
  for (int i = 0; i < 3; ++i) {
    MakeCalls(Connect("127.0.0.2"), 2 * Admission::kBudget);
    for (int j = 0; j < 10; ++j) Connect("127.0.0.2");
    Advance(absl::Seconds(10));
  }
  ASSERT_EQ(log_.size(), 1);
  EXPECT_TRUE(absl::StrContains(log_[0], "127.0.0.2")) << log_[0];
  EXPECT_TRUE(admission_.WasLogged("ipv4:127.0.0.2:1"));
  EXPECT_FALSE(admission_.WasLogged("ipv4:127.0.0.3:1"));
}

TEST_F(AdmissionTest, RefusesAnAddressThatConnectsWithoutAuthenticating) {
  for (int i = 0; i < Admission::kBudget - 1; ++i) {
    const Client client = Connect();
    EXPECT_FALSE(IsClosed(client)) << i;
    shutdown(client.fd, SHUT_RDWR);
    shutdown(admitted_.back(), SHUT_RDWR);
    Advance(absl::ZeroDuration());
  }
  Connect();
  EXPECT_TRUE(IsClosed(Connect()));
}

TEST_F(AdmissionTest, RefillsTheBudget) {
  for (int i = 0; i < 4 * Admission::kBudget; ++i) {
    const Client client = Connect();
    EXPECT_FALSE(IsClosed(client)) << i;
    shutdown(client.fd, SHUT_RDWR);
    shutdown(admitted_.back(), SHUT_RDWR);
    Advance(absl::Seconds(1) / Admission::kRefillPerSecond);
  }
}

TEST_F(AdmissionTest, ClosesAConnectionThatDoesNotAuthenticateInTime) {
  const Client idle = Connect();
  const Client authenticated = Connect();
  admission_.OnAuthenticated(authenticated.peer);
  Advance(absl::Seconds(10));
  EXPECT_FALSE(IsClosed(idle));
  Advance(absl::Milliseconds(1));
  EXPECT_TRUE(IsClosed(idle));
  EXPECT_FALSE(IsClosed(authenticated));
  EXPECT_FALSE(IsClosed(Connect())) << "one idle connection is no attack";
}

TEST_F(AdmissionTest, RefusesAnAddressWithManyIdleConnections) {
  const Client authenticated = Connect("127.0.0.2");
  admission_.OnAuthenticated(authenticated.peer);
  std::vector<Client> idle;
  for (int i = 0; i < 1000; ++i) idle.push_back(Connect("127.0.0.2"));
  Advance(absl::Seconds(10) + absl::Milliseconds(1));
  for (const Client& client : idle) EXPECT_TRUE(IsClosed(client)) << client.peer;
  EXPECT_FALSE(IsClosed(authenticated));
  EXPECT_EQ(log_.size(), 1);
  Advance(absl::Seconds(10));
  EXPECT_FALSE(admission_.Update());
}

TEST_F(AdmissionTest, RefusesAnAddressThatSendsTooMuch) {
  const Client attacker = Connect();
  std::string bytes(1 << 10, 'x');
  for (int i = 0; i < Admission::kBudget; ++i) {
    EXPECT_FALSE(IsClosed(attacker)) << i;
    ASSERT_EQ(::send(attacker.fd, bytes.data(), bytes.size(), MSG_NOSIGNAL), bytes.size());
    ASSERT_EQ(recv(admitted_.back(), bytes.data(), bytes.size(), MSG_WAITALL), bytes.size());
    Advance(absl::ZeroDuration());
  }
  EXPECT_TRUE(IsClosed(attacker));
  EXPECT_TRUE(IsClosed(Connect()));
}

// gRPC escapes IPv6 peers.
TEST_F(AdmissionTest, KnowsPeersOfIpv6) {
  const int listener = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in6 name = {};
  name.sin6_family = AF_INET6;
  name.sin6_addr = in6addr_loopback;
  socklen_t size = sizeof(name);
  if (bind(listener, reinterpret_cast<sockaddr*>(&name), size) != 0) GTEST_SKIP() << "no IPv6";
  listen(listener, 1);
  getsockname(listener, reinterpret_cast<sockaddr*>(&name), &size);
  const int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  clients_.push_back(fd);
  ASSERT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&name), size), 0);
  getsockname(fd, reinterpret_cast<sockaddr*>(&name), &size);
  admission_.OnConnection(listener, accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
  EXPECT_TRUE(admission_.HasStrangers());
  admission_.OnAuthenticated(absl::StrCat("ipv6:%5B::1%5D:", ntohs(name.sin6_port)));
  EXPECT_FALSE(admission_.HasStrangers());
  close(listener);
}

}  // namespace
}  // namespace muster
