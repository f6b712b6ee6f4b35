#include "collectives/gloo/gloo_link.h"

#include <arpa/inet.h>
#include <gloo/transport/context.h>
#include <gloo/transport/tcp/address.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>
#include <netinet/in.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/status.h"

namespace muster::collectives {
namespace {

// Ranks in a link's two-rank context; each side sees itself as 0 and its peer as 1.
constexpr int kSelf = 0;
constexpr int kPeer = 1;
// Gloo waits for a connection this many times as long as its timeout.
constexpr int kGlooConnectFactor = 5;

// Converts exceptions from `function` to UNAVAILABLE.
template <typename Function>
absl::Status Guard(absl::string_view what, const Function& function) {
  try {
    function();
    return absl::OkStatus();
  } catch (const std::exception& error) {
    return absl::UnavailableError(absl::StrCat(what, ": ", error.what()));
  }
}

// Gloo writes to its sockets without MSG_NOSIGNAL, so a dead peer would kill this process with
// SIGPIPE.
void IgnoreSigpipe() {
  struct sigaction action = {};
  if (sigaction(SIGPIPE, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) return;
  action.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &action, nullptr);
}

absl::StatusOr<std::vector<char>> ParseAddress(absl::string_view text) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits(' ', 1));
  uint32_t port = 0;
  sockaddr_in v4 = {};
  sockaddr_in6 v6 = {};
  if (absl::SimpleAtoi(parts.second, &port) && port > 0 && port <= 65535) {
    if (inet_pton(AF_INET, parts.first.c_str(), &v4.sin_addr) == 1) {
      v4.sin_family = AF_INET;
      v4.sin_port = htons(static_cast<uint16_t>(port));
      return gloo::transport::tcp::Address(reinterpret_cast<sockaddr*>(&v4), sizeof(v4)).bytes();
    }
    if (inet_pton(AF_INET6, parts.first.c_str(), &v6.sin6_addr) == 1) {
      v6.sin6_family = AF_INET6;
      v6.sin6_port = htons(static_cast<uint16_t>(port));
      return gloo::transport::tcp::Address(reinterpret_cast<sockaddr*>(&v6), sizeof(v6)).bytes();
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("invalid peer address '", text, "'; must be ADDRESS PORT"));
}

absl::StatusOr<std::string> FormatAddress(const sockaddr_storage& address) {
  char host[INET6_ADDRSTRLEN] = {};
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    inet_ntop(AF_INET, &v4.sin_addr, host, sizeof(host));
    return absl::StrCat(host, " ", ntohs(v4.sin_port));
  }
  if (address.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
    inet_ntop(AF_INET6, &v6.sin6_addr, host, sizeof(host));
    return absl::StrCat(host, " ", ntohs(v6.sin6_port));
  }
  return absl::InternalError("Gloo listens on an address that is neither IPv4 nor IPv6");
}

}  // namespace

absl::StatusOr<std::shared_ptr<gloo::transport::Device>> CreateGlooDevice(
    const std::string& address) {
  IgnoreSigpipe();
  std::shared_ptr<gloo::transport::Device> device;
  RETURN_IF_ERROR(Guard(absl::StrCat("listening on ", address), [&] {
    device = gloo::transport::tcp::CreateDevice(gloo::transport::tcp::attr(address.c_str()));
  }));
  return device;
}

absl::StatusOr<std::unique_ptr<GlooLink>> GlooLink::Listen(
    const std::shared_ptr<gloo::transport::Device>& device, absl::Duration connect_timeout) {
  std::shared_ptr<gloo::transport::Context> context;
  RETURN_IF_ERROR(Guard("listening for a peer", [&] {
    context = device->createContext(kSelf, 2);
    context->setTimeout(std::max(std::chrono::milliseconds(1),
                                 absl::ToChronoMilliseconds(connect_timeout / kGlooConnectFactor)));
    context->createPair(kPeer);
  }));
  return {std::unique_ptr<GlooLink>(new GlooLink(std::move(context)))};
}

GlooLink::GlooLink(std::shared_ptr<gloo::transport::Context> context)
    : context_(std::move(context)) {}

GlooLink::~GlooLink() = default;

absl::StatusOr<std::string> GlooLink::Address() const {
  const std::vector<char> bytes = context_->getPair(kPeer)->address().bytes();
  return FormatAddress(gloo::transport::tcp::Address(bytes).getSockaddr());
}

absl::Status GlooLink::Connect(absl::string_view peer_address) {
  ASSIGN_OR_RETURN(const std::vector<char> address, ParseAddress(peer_address));
  return Guard("connecting", [&] { context_->getPair(kPeer)->connect(address); });
}

void GlooLink::Close() {
  Guard("closing", [&] { context_->getPair(kPeer)->close(); }).IgnoreError();
}

// When a connection breaks, Gloo signals the buffers of messages that have not started, but not
// those of partly transferred messages: a wait for one of these would last until its timeout. Each
// endpoint therefore also has a pending receive that never starts. Gloo cannot cancel it, so
// endpoints are reused and cover all memory.
std::unique_ptr<gloo::transport::UnboundBuffer> GlooLink::TakeEndpoint() {
  {
    absl::MutexLock lock(&mutex_);
    if (!idle_endpoints_.empty()) {
      auto endpoint = std::move(idle_endpoints_.back());
      idle_endpoints_.pop_back();
      return endpoint;
    }
  }
  auto endpoint = context_->createUnboundBuffer(nullptr, std::numeric_limits<size_t>::max());
  // Ignored: on a broken connection Send and Receive return the error, too.
  Receive(endpoint.get(), kReservedSlot, nullptr, 0).IgnoreError();
  return endpoint;
}

void GlooLink::ReturnEndpoint(std::unique_ptr<gloo::transport::UnboundBuffer> endpoint) {
  absl::MutexLock lock(&mutex_);
  idle_endpoints_.push_back(std::move(endpoint));
}

absl::Status GlooLink::Send(gloo::transport::UnboundBuffer* endpoint, uint64_t slot,
                            const void* data, size_t size_bytes) {
  return Guard("sending",
               [&] { endpoint->send(kPeer, slot, reinterpret_cast<uintptr_t>(data), size_bytes); });
}

absl::Status GlooLink::Receive(gloo::transport::UnboundBuffer* endpoint, uint64_t slot, void* data,
                               size_t size_bytes) {
  return Guard("receiving",
               [&] { endpoint->recv(kPeer, slot, reinterpret_cast<uintptr_t>(data), size_bytes); });
}

}  // namespace muster::collectives
