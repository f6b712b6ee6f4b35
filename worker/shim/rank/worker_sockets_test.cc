#include "worker/shim/rank/worker_sockets.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/shim/protocol.h"

namespace muster::shim {
namespace {

using ::testing::ElementsAre;

class WorkerSocketsTest : public ::testing::Test {
 protected:
  WorkerSocketsTest() {
    char pattern[] = "/tmp/worker-sockets-XXXXXX";
    directory_ = mkdtemp(pattern);
    EXPECT_EQ(chdir(directory_.c_str()), 0);
    int pair[2] = {-1, -1};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    worker_ = pair[0];
    sockets_ = std::make_unique<WorkerSockets>(
        pair[1], WorkerSockets::Events{[this](int fd) {
                                         watched_.push_back(fd);
                                         return true;
                                       },
                                       [] { return std::string("state\n"); },
                                       [this](std::string_view command) {
                                         commands_.emplace_back(command);
                                         return command == "ping" ? "pong\n" : "";
                                       },
                                       [this] { ++disconnected_; }});
    EXPECT_TRUE(sockets_->Open());
  }
  ~WorkerSocketsTest() override {
    if (worker_ >= 0) close(worker_);
    unlink(kSocketFile);
    EXPECT_EQ(chdir("/"), 0);
    rmdir(directory_.c_str());
  }

  void Write(std::string_view text) {
    ASSERT_EQ(write(worker_, text.data(), text.size()), static_cast<ssize_t>(text.size()));
    sockets_->ReadAll();
  }
  static std::string Read(int fd) {
    char buffer[256];
    const ssize_t n = recv(fd, buffer, sizeof(buffer), MSG_DONTWAIT);
    return n > 0 ? std::string(buffer, static_cast<size_t>(n)) : "";
  }
  // Connects another worker, which the sockets accept.
  int Connect() {
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, kSocketFile, sizeof(address.sun_path) - 1);
    EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    sockets_->OnReadable(watched_.front());  // the listener
    return fd;
  }

  std::string directory_;
  int worker_ = -1;
  std::vector<int> watched_;
  std::vector<std::string> commands_;
  int disconnected_ = 0;
  std::unique_ptr<WorkerSockets> sockets_;
};

TEST_F(WorkerSocketsTest, ExecutesWholeLinesAndAnswersTheirSender) {
  const int other = Connect();
  Write("no");
  EXPECT_THAT(commands_, ElementsAre());
  Write("te a\nping\nst");
  EXPECT_THAT(commands_, ElementsAre("note a", "ping"));
  EXPECT_EQ(Read(worker_), "pong\n");
  EXPECT_EQ(Read(other), "state\n");
  sockets_->Broadcast("started 1\n");
  EXPECT_EQ(Read(worker_), "started 1\n");
  EXPECT_EQ(Read(other), "started 1\n");
  close(other);
}

TEST_F(WorkerSocketsTest, DisconnectsWorkerThatSendsTooLongLine) {
  Write(std::string(2 * kMaxNoteBytes, 'a'));
  EXPECT_EQ(disconnected_, 1);
  EXPECT_FALSE(sockets_->connected());
  EXPECT_THAT(commands_, ElementsAre());
}

TEST_F(WorkerSocketsTest, ReportsThatWorkerHasDisconnected) {
  close(std::exchange(worker_, -1));
  EXPECT_TRUE(sockets_->connected());
  sockets_->ReadAll();
  EXPECT_EQ(disconnected_, 1);
  EXPECT_FALSE(sockets_->connected());
}

TEST_F(WorkerSocketsTest, LimitsNumberOfWorkers) {
  std::vector<int> accepted;
  for (int i = 1; i < 8; ++i) {
    accepted.push_back(Connect());
    EXPECT_EQ(Read(accepted.back()), "state\n");
  }
  const int rejected = Connect();
  EXPECT_EQ(Read(rejected), "");
  close(rejected);
  for (const int fd : accepted) close(fd);
}

}  // namespace
}  // namespace muster::shim
