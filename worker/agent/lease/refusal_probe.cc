#include "worker/agent/lease/refusal_probe.h"

#include <arpa/inet.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/http/address.h"

namespace muster::agent {
namespace {

struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t length = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

std::optional<SocketAddress> Parse(absl::string_view peer) {
  if (!absl::ConsumePrefix(&peer, "ipv4:") && !absl::ConsumePrefix(&peer, "ipv6:")) {
    return std::nullopt;
  }
  const absl::StatusOr<Address> address =
      ParseAddress(absl::StrReplaceAll(peer, {{"%5B", "["}, {"%5D", "]"}}));
  if (!address.ok()) return std::nullopt;
  SocketAddress result;
  auto* const v4 = reinterpret_cast<sockaddr_in*>(&result.storage);
  auto* const v6 = reinterpret_cast<sockaddr_in6*>(&result.storage);
  if (inet_pton(AF_INET, address->host.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(address->port);
    result.length = sizeof(*v4);
  } else if (inet_pton(AF_INET6, address->host.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(address->port);
    result.length = sizeof(*v6);
  } else {
    return std::nullopt;
  }
  return result;
}

OwnedFd OpenSocket(const SocketAddress& address, int type) {
  return OwnedFd(socket(address.storage.ss_family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

// Whether the address belongs to this machine, so that no other host can answer for it.
bool IsLocal(const SocketAddress& address) {
  const OwnedFd probe = OpenSocket(address, SOCK_DGRAM);
  SocketAddress source;
  source.length = sizeof(source.storage);
  const bool routed =
      connect(probe.get(), address.get(), address.length) == 0 &&
      getsockname(probe.get(), reinterpret_cast<sockaddr*>(&source.storage), &source.length) == 0;
  if (!routed || source.storage.ss_family != address.storage.ss_family) return false;
  if (address.storage.ss_family == AF_INET) {
    const auto* const a = reinterpret_cast<const sockaddr_in*>(&address.storage);
    const auto* const b = reinterpret_cast<const sockaddr_in*>(&source.storage);
    return a->sin_addr.s_addr == b->sin_addr.s_addr;
  }
  const auto* const a = reinterpret_cast<const sockaddr_in6*>(&address.storage);
  const auto* const b = reinterpret_cast<const sockaddr_in6*>(&source.storage);
  return std::memcmp(&a->sin6_addr, &b->sin6_addr, sizeof(a->sin6_addr)) == 0;
}

// Whether a connection attempt ended because its peer sent a TCP reset. An ICMP message has the
// same error code, but no TCP segment has arrived then.
bool WasReset(int fd) {
  tcp_info info = {};
  socklen_t length = sizeof(info);
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return false;
  int error = 0;
  length = sizeof(error);
  if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0) return false;
  return error == ECONNREFUSED && info.tcpi_segs_in > 0;
}

}  // namespace

RefusalProbe::~RefusalProbe() {
  while (!connections_.empty()) {
    connections_.begin()->second.done = [](bool) {};
    End(connections_.begin()->first, false);
  }
}

void RefusalProbe::Start(const std::string& address, absl::Duration patience, Done done) {
  const std::optional<SocketAddress> parsed = Parse(address);
  OwnedFd socket = parsed.has_value() ? OpenSocket(*parsed, SOCK_STREAM) : OwnedFd();
  const int fd = socket.get();
  if (fd < 0) return loop_.Post([done = std::move(done)] { done(false); });
  connections_[fd] = {std::move(socket), loop_.RunAfter(patience, [this, fd] { End(fd, false); }),
                      std::move(done)};
  if (connect(fd, parsed->get(), parsed->length) == 0 || errno == EINPROGRESS) {
    loop_.WatchWritable(fd, [this, fd] { End(fd, WasReset(fd)); });
    return;
  }
  // The kernel itself refuses connections to closed ports of this machine.
  const bool refused = errno == ECONNREFUSED && IsLocal(*parsed);
  loop_.WatchWritable(fd, [this, fd, refused] { End(fd, refused); });
}

void RefusalProbe::End(int fd, bool refused) {
  auto connection = connections_.extract(fd);
  if (connection.empty()) return;
  loop_.Unwatch(fd);
  loop_.Cancel(connection.mapped().timer);
  connection.mapped().socket.Close();
  connection.mapped().done(refused);
}

}  // namespace muster::agent
