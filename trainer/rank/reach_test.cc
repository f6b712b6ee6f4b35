#include "trainer/rank/reach.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::rank {
namespace {

using ::testing::StartsWith;

constexpr char kHost[] = "127.0.0.1";

// A loopback socket with a free port that accepts no connections.
class Unserved {
 public:
  Unserved() {
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address_);
    EXPECT_EQ(bind(socket_, reinterpret_cast<sockaddr*>(&address_), size), 0);
    EXPECT_EQ(getsockname(socket_, reinterpret_cast<sockaddr*>(&address_), &size), 0);
  }
  ~Unserved() {
    for (const int fd : clients_) close(fd);
    close(socket_);
  }

  void Listen(int backlog) { EXPECT_EQ(listen(socket_, backlog), 0); }
  // Fills the accept queue, so that further connection attempts are silently dropped, as by a
  // firewall.
  void FillUp() {
    Listen(0);
    for (int i = 0; i < 2; ++i) {
      clients_.push_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      connect(clients_.back(), reinterpret_cast<sockaddr*>(&address_), sizeof(address_));
    }
  }
  // Accepts one connection and sends `text`.
  void SendText(const std::string& text) {
    const int peer = accept(socket_, nullptr, nullptr);
    EXPECT_EQ(send(peer, text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
    close(peer);
  }
  ReachTarget target() const { return {{kHost, ntohs(address_.sin_port)}, "word\n"}; }

 private:
  const int socket_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address_ = {};
  std::vector<int> clients_;
};

class ReachTest : public ::testing::Test {
 protected:
  void AddListener(const std::string& host = kHost) {
    const std::string word = "word " + std::to_string(listeners_.size()) + "\n";
    auto listener = ReachListener::Start(host, word);
    ASSERT_TRUE(listener.ok()) << listener.status();
    targets_.push_back({{kHost, (*listener)->port()}, word});
    listeners_.push_back(*std::move(listener));
  }

  std::vector<std::unique_ptr<ReachListener>> listeners_;
  std::vector<ReachTarget> targets_;
};

TEST_F(ReachTest, ReachesAllTargets) {
  EXPECT_TRUE(ReachAll({}, {}).status.ok());
  for (int i = 0; i < 20; ++i) AddListener();
  for (const size_t at_once : {1, 3, 64}) {
    const ReachResult result = ReachAll(targets_, {.at_once = at_once});
    EXPECT_TRUE(result.status.ok()) << result.status;
  }
}

TEST_F(ReachTest, ReportsRefusedConnection) {
  const Unserved closed;
  for (int i = 0; i < 3; ++i) AddListener();
  targets_.insert(targets_.begin() + 2, closed.target());
  const ReachResult result = ReachAll(targets_, {});
  EXPECT_TRUE(absl::IsUnavailable(result.status));
  EXPECT_EQ(result.status.message(), "Connection refused");
  EXPECT_EQ(result.target, 2u);
}

TEST_F(ReachTest, ReportsMissingReply) {
  Unserved silent;
  silent.Listen(8);
  AddListener();
  targets_.push_back(silent.target());
  const ReachResult result = ReachAll(targets_, {.timeout = absl::Milliseconds(200)});
  EXPECT_TRUE(absl::IsUnavailable(result.status));
  EXPECT_EQ(result.status.message(), "connected, but no reply within 200ms");
  EXPECT_EQ(result.target, 1u);
}

TEST_F(ReachTest, ReportsConnectionTimeout) {
  Unserved full;
  full.FillUp();
  AddListener();
  targets_.push_back(full.target());
  const ReachResult result = ReachAll(targets_, {.timeout = absl::Milliseconds(200)});
  EXPECT_EQ(result.status.message(), "connection timed out after 200ms");
  EXPECT_EQ(result.target, 1u);
}

TEST_F(ReachTest, ReportsUnexpectedReply) {
  for (const char* text : {"", "wo", "HTTP/1.1 400", "word\nand more"}) {
    Unserved other;
    other.Listen(8);
    std::thread server([&] { other.SendText(text); });
    const ReachResult result = ReachAll({other.target()}, {});
    server.join();
    EXPECT_TRUE(absl::IsUnavailable(result.status));
    EXPECT_EQ(result.status.message(), "unexpected reply; the address is in use by another program")
        << text;
  }
}

TEST_F(ReachTest, ReturnsWhenCancelled) {
  Unserved silent;
  silent.Listen(8);
  std::atomic<int> asked{0};
  const ReachResult result =
      ReachAll({silent.target()},
               {.timeout = absl::Minutes(10), .cancelled = [&asked] { return ++asked == 2; }});
  EXPECT_TRUE(absl::IsCancelled(result.status));
}

TEST_F(ReachTest, ListensOnAllAddressesBehindNat) {
  AddListener("192.0.2.1");  // reserved for documentation: RFC 5737
  EXPECT_TRUE(ReachAll(targets_, {}).status.ok());
}

TEST_F(ReachTest, DestructorStopsListening) {
  AddListener();
  listeners_.clear();
  EXPECT_EQ(ReachAll(targets_, {}).status.message(), "Connection refused");
}

}  // namespace
}  // namespace muster::rank
