// Connections that break in the middle of a message. The ranks are threads; a relay between them
// closes both of its connections after a given number of bytes.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "collectives/communicator.h"
#include "collectives/factory.h"
#include "collectives/peer_status.h"
#include "collectives/testing.h"
#include "common/status.h"

namespace muster::collectives {
namespace {

sockaddr_in LoopbackAddress(uint16_t port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

enum class AtLimit {
  kDisconnect,
  // Holds back further data from the same side until that side closes, then forwards it together
  // with the close.
  kHoldUntilClosed,
};

// Forwards both directions of one connection to a local port, `limit_bytes` in total.
class Relay {
 public:
  Relay(uint16_t target_port, size_t limit_bytes, AtLimit at_limit)
      : listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = LoopbackAddress(0);
    socklen_t size = sizeof(address);
    const auto generic = reinterpret_cast<sockaddr*>(&address);
    if (bind(listener_, generic, size) == 0 && listen(listener_, 1) == 0 &&
        getsockname(listener_, generic, &size) == 0) {
      port_ = ntohs(address.sin_port);
    }
    thread_ = std::thread([=, this] { Run(target_port, limit_bytes, at_limit); });
  }
  ~Relay() {
    shutdown(listener_, SHUT_RDWR);  // wakes accept
    thread_.join();
    close(listener_);
  }

  uint16_t port() const { return port_; }

 private:
  void Run(uint16_t target_port, size_t limit_bytes, AtLimit at_limit) {
    const int near = accept(listener_, nullptr, nullptr);
    const int far = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_in target = LoopbackAddress(target_port);
    if (connect(far, reinterpret_cast<const sockaddr*>(&target), sizeof(target)) == 0) {
      Forward(near, far, limit_bytes, at_limit);
    }
    close(near);
    close(far);
  }

  static void Forward(int near, int far, size_t left_bytes, AtLimit at_limit) {
    std::vector<char> buffer(64 << 10);
    pollfd pollers[] = {{near, POLLIN, 0}, {far, POLLIN, 0}};
    for (;;) {
      if (poll(pollers, 2, -1) < 0) return;
      for (int i = 0; i < 2; ++i) {
        if (pollers[i].revents == 0) continue;
        const int to = pollers[1 - i].fd;
        const ssize_t n = read(pollers[i].fd, buffer.data(), buffer.size());
        const ssize_t now = std::min<ssize_t>(n, left_bytes);
        if (n <= 0 || write(to, buffer.data(), now) != now) return;
        left_bytes -= now;
        if (left_bytes > 0) continue;
        if (at_limit == AtLimit::kHoldUntilClosed) {
          Hold(pollers[i].fd, to, std::string(buffer.data() + now, n - now));
        }
        return;
      }
    }
  }

  static void Hold(int from, int to, std::string held) {
    char buffer[4096];
    for (ssize_t n; (n = read(from, buffer, sizeof(buffer))) > 0;) held.append(buffer, n);
    const int on = 1;
    setsockopt(to, IPPROTO_TCP, TCP_CORK, &on, sizeof(on));  // until the close
    if (write(to, held.data(), held.size()) < 0) return;
  }

  const int listener_;
  uint16_t port_ = 0;
  std::thread thread_;
};

// Makes rank 0 connect to rank 1 through a relay. Of two ranks, the one with the higher address
// connects and the other listens: each receives a peer address that compares accordingly.
class RelayedKeyStore final : public KeyStore {
 public:
  RelayedKeyStore(size_t limit_bytes, AtLimit at_limit)
      : limit_bytes_(limit_bytes), at_limit_(at_limit) {}

  absl::Status Put(absl::string_view key, absl::string_view value) override {
    return store_.Put(key, value);
  }

  absl::StatusOr<std::string> Get(absl::string_view key, absl::Duration timeout) override {
    ASSIGN_OR_RETURN(std::string value, store_.Get(key, timeout));
    if (absl::EndsWith(key, "/address/0-1")) return {"127.0.0.2 1"};
    if (!absl::EndsWith(key, "/address/1-0")) return {std::move(value)};
    const std::vector<std::string> parts = absl::StrSplit(value, ' ');
    uint32_t port = 0;
    if (!absl::SimpleAtoi(parts.back(), &port)) return absl::InternalError(value);
    relay_ = std::make_unique<Relay>(static_cast<uint16_t>(port), limit_bytes_, at_limit_);
    return absl::StrCat("0.0.0.0 ", relay_->port());
  }

 private:
  const size_t limit_bytes_;
  const AtLimit at_limit_;
  FileKeyStore store_;
  std::unique_ptr<Relay> relay_;  // created when rank 0 reads the key
};

// Runs ranks 0 and 1 and returns their results of `body`.
std::vector<std::string> RunRelayedRanks(RelayedKeyStore* store,
                                         absl::FunctionRef<absl::Status(Communicator&)> body) {
  return RunRankThreads(2, [&](uint32_t rank) -> absl::Status {
    GroupOptions options;
    options.name = "WORLD";
    options.id = "disconnect";
    options.rank = rank;
    options.size = 2;
    options.members = {0, 1};
    options.store = store;
    options.interface_address = "127.0.0.1";
    ASSIGN_OR_RETURN(const auto communicator, CreateCommunicator("gloo", options));
    return body(*communicator);
  });
}

// Exceeds the socket buffers between the ranks.
constexpr size_t kLargeBytes = 64 << 20;

void ExpectThatBothRanksLoseTheirPeer(
    absl::FunctionRef<std::shared_ptr<Work>(Communicator&, void* data)> operation) {
  RelayedKeyStore store(/*limit_bytes=*/1 << 20, AtLimit::kDisconnect);
  const absl::Time start = absl::Now();
  const auto results = RunRelayedRanks(&store, [&](Communicator& communicator) -> absl::Status {
    std::vector<uint8_t> data(kLargeBytes);
    const absl::Status status = operation(communicator, data.data())->Wait();
    if (!absl::IsUnavailable(status)) return absl::InternalError(status.ToString());
    return PeerRankOf(status) == 1 - communicator.rank() ? absl::OkStatus() : status;
  });
  for (const std::string& result : results) EXPECT_EQ(result, "");
  EXPECT_LT(absl::Now() - start, absl::Seconds(10));
}

TEST(GlooDisconnectTest, EndsPartlyTransferredMessage) {
  ExpectThatBothRanksLoseTheirPeer([](Communicator& communicator, void* data) {
    return communicator.rank() == 0 ? communicator.Send(data, kLargeBytes, DataType::kUint8, 1)
                                    : communicator.Recv(data, kLargeBytes, DataType::kUint8, 0);
  });
}

TEST(GlooDisconnectTest, EndsPartlyTransferredCollective) {
  ExpectThatBothRanksLoseTheirPeer([](Communicator& communicator, void* data) {
    return communicator.AllReduce(data, data, kLargeBytes, DataType::kUint8, ReduceOp::kSum);
  });
}

TEST(GlooDisconnectTest, ReceivesMessageFromRankThatLeftAfterSending) {
  constexpr size_t kBytes = 32 << 10;
  // Repeated, because it varies whether the receiver wakes before the connection is seen as closed.
  for (int round = 0; round < 8; ++round) {
    RelayedKeyStore store(kBytes / 2, AtLimit::kHoldUntilClosed);
    const auto results = RunRelayedRanks(&store, [&](Communicator& communicator) -> absl::Status {
      std::vector<uint8_t> data(kBytes, communicator.rank());
      if (communicator.rank() == 1) {
        return communicator.Send(data.data(), kBytes, DataType::kUint8, 0)->Wait();
      }
      RETURN_IF_ERROR(communicator.Recv(data.data(), kBytes, DataType::kUint8, 1)->Wait());
      return data.back() == 1 ? absl::OkStatus() : absl::InternalError("wrong data");
    });
    for (const std::string& result : results) EXPECT_EQ(result, "") << "round " << round;
  }
}

}  // namespace
}  // namespace muster::collectives
