#include "worker/c10d_store/server.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>

#include "common/http/address.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/c10d_store/protocol.h"
#include "worker/shim/fields.h"

namespace muster::c10d_store {
namespace {

using ::testing::HasSubstr;

template <typename Number>
std::string N(Number number) {
  return std::string(reinterpret_cast<const char*>(&number), sizeof(number));
}
std::string T(const std::string& text) { return N<uint64_t>(text.size()) + text; }
std::string Type(uint8_t type) { return std::string(1, static_cast<char>(type)); }

const std::string kGreeting("\0\xce\xf7\x85\x3c", 5);

class ServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/c10d-store-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
    auto sockets = Listen({"127.0.0.1", 0});
    ASSERT_TRUE(sockets.ok()) << sockets.status();
    port_ = sockets->port;
    ServerOptions options;
    options.listeners = sockets->sockets;
    options.port = port_;
    options.world_size = 2;
    options.marks = {"SERVER_TEST=none"};
    options.status_path = directory_ + "/" + kStatusFile;
    server_ = std::make_unique<Server>(std::move(options));
    ASSERT_TRUE(server_->Start());
  }
  void TearDown() override {
    for (const int client : clients_) close(client);
    server_.reset();
    std::filesystem::remove_all(directory_);
  }

  int Connect() {
    const int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    clients_.push_back(client);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port_);
    EXPECT_EQ(connect(client, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    return client;
  }
  static void Send(int client, const std::string& bytes) {
    ASSERT_EQ(send(client, bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  // The next bytes that the client receives, while the server runs; fewer if it is disconnected.
  std::string Receive(int client, size_t size) {
    std::string received;
    while (received.size() < size) {
      char buffer[64 << 10];
      const ssize_t n =
          recv(client, buffer, std::min(sizeof(buffer), size - received.size()), MSG_DONTWAIT);
      if (n == 0 || (n < 0 && errno != EAGAIN)) return received;
      if (n > 0) received.append(buffer, static_cast<size_t>(n));
      if (n < 0) server_->Poll(100);
    }
    return received;
  }
  Status ReadStatus() const {
    const auto text = shim::ReadFile(directory_ + "/" + kStatusFile);
    EXPECT_TRUE(text.has_value());
    return DecodeStatus(text.value_or("")).value_or(Status());
  }

  std::string directory_;
  uint16_t port_ = 0;
  std::unique_ptr<Server> server_;
  std::vector<int> clients_;
};

TEST_F(ServerTest, ServesBothProtocols) {
  const int modern = Connect();
  Send(modern, kGreeting + Type(13) + N<uint32_t>(5) + Type(1) + T("/a") + T("1"));
  EXPECT_EQ(Receive(modern, 4), N<uint32_t>(5));
  const int old = Connect();
  Send(old, Type(5) + N<uint64_t>(1) + T("/a") + Type(2) + T("/a"));
  EXPECT_EQ(Receive(old, 10), std::string(1, '\0') + T("1"));
}

TEST_F(ServerTest, ReportsWaitsUntilTheyEnd) {
  EXPECT_EQ(ReadStatus(), Status());
  const int waiter = Connect();
  Send(waiter, kGreeting + Type(6) + N<uint64_t>(1) + T("/default_pg/0//cpu//0/1"));
  while (ReadStatus().waits.empty()) server_->Poll(100);
  EXPECT_THAT(ReadStatus().waits[0].what, HasSubstr("awaited by the process at 127.0.0.1:"));
  EXPECT_EQ(ReadStatus().waits[0].missing, std::vector<uint32_t>{1});
  const int setter = Connect();
  Send(setter, kGreeting + Type(1) + T("/default_pg/0//cpu//0/1") + T("address"));
  EXPECT_EQ(Receive(waiter, 1), std::string(1, '\0'));
  while (!ReadStatus().waits.empty()) server_->Poll(100);
}

TEST_F(ServerTest, DisconnectsAndReportsClientsOfOtherProtocols) {
  const int other = Connect();
  Send(other, "GET / HTTP/1.1\r\n\r\n");
  EXPECT_EQ(Receive(other, 1), "");
  ASSERT_EQ(ReadStatus().problems.size(), 1u);
  EXPECT_THAT(ReadStatus().problems[0].text,
              HasSubstr("disconnected from the c10d store: it sent a request of type 71"));
  EXPECT_THAT(ReadStatus().problems[0].client, HasSubstr("the process at 127.0.0.1:"));
  const int client = Connect();
  Send(client, kGreeting + Type(7));
  EXPECT_EQ(Receive(client, 8), N<int64_t>(0));
}

TEST_F(ServerTest, AsksWorkersForRanks) {
  const int client = Connect();
  Send(client, kGreeting + Type(6) + N<uint64_t>(1) + T("/a"));
  const int worker = Connect();
  Send(worker, std::string(kIntroduction));
  uint16_t port = 0;
  const std::string question = Receive(worker, sizeof(port));
  ASSERT_EQ(question.size(), sizeof(port));
  std::memcpy(&port, question.data(), sizeof(port));
  sockaddr_in address = {};
  socklen_t size = sizeof(address);
  ASSERT_EQ(getsockname(client, reinterpret_cast<sockaddr*>(&address), &size), 0);
  EXPECT_EQ(port, ntohs(address.sin_port));
  Send(worker, EncodeNameRank(port, 1));
  while (ReadStatus().waits.empty()) server_->Poll(100);
  EXPECT_THAT(ReadStatus().waits[0].what, HasSubstr("awaited by rank 1"));
  EXPECT_EQ(ReadStatus().waits[0].missing, std::vector<uint32_t>{0});
}

TEST_F(ServerTest, SendsMoreThanASocketAccepts) {
  const std::string value(32 << 20, 'v');
  const int client = Connect();
  Send(client, kGreeting);
  const std::string set = Type(1) + T("/large") + T(value);
  for (size_t sent = 0; sent < set.size();) {
    const ssize_t n = send(client, set.data() + sent, set.size() - sent, MSG_DONTWAIT);
    if (n > 0) sent += static_cast<size_t>(n);
    if (n < 0) server_->Poll(100);
  }
  // The requests after the first wait until its answer has been sent.
  Send(client, Type(3) + T("/large") + Type(3) + T("/large") + Type(7));
  EXPECT_EQ(Receive(client, 2 * (8 + value.size()) + 8), T(value) + T(value) + N<int64_t>(1));
}

}  // namespace
}  // namespace muster::c10d_store
