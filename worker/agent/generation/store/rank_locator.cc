#include "worker/agent/generation/store/rank_locator.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/now.h"
#include "worker/c10d_store/local_peers.h"
#include "worker/c10d_store/protocol.h"

namespace muster::agent {
namespace {

constexpr absl::Duration kRetryInterval = absl::Seconds(2);

}  // namespace

void RankLocator::Tick() {
  if (socket_ >= 0 || Now().steady < retry_at_) return;
  retry_at_ = Now().steady + kRetryInterval;
  Connect();
}

void RankLocator::Connect() {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  // Resolving a name would block the loop.
  hints.ai_flags = AI_NUMERICHOST;
  addrinfo* found = nullptr;
  if (getaddrinfo(store_.host.c_str(), absl::StrCat(store_.port).c_str(), &hints, &found) != 0) {
    return;
  }
  socket_ = socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  const int result = socket_ < 0 ? -1 : connect(socket_, found->ai_addr, found->ai_addrlen);
  const bool started = result == 0 || errno == EINPROGRESS;
  freeaddrinfo(found);
  if (socket_ < 0) return;
  if (started) return loop_.WatchWritable(socket_, [this] { OnConnected(); });
  close(socket_);
  socket_ = -1;
}

void RankLocator::Disconnect() {
  if (socket_ < 0) return;
  loop_.Unwatch(socket_);
  close(socket_);
  socket_ = -1;
  input_.clear();
}

void RankLocator::OnConnected() {
  // Fails if the connection was refused. The socket's buffer is empty.
  const std::string_view introduction = c10d_store::kIntroduction;
  const ssize_t sent = send(socket_, introduction.data(), introduction.size(), MSG_NOSIGNAL);
  if (sent != static_cast<ssize_t>(introduction.size())) return Disconnect();
  loop_.Unwatch(socket_);
  loop_.Watch(socket_, [this] { OnReadable(); });
}

void RankLocator::OnReadable() {
  char buffer[1024];
  const ssize_t n = recv(socket_, buffer, sizeof(buffer), 0);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n <= 0) return Disconnect();
  input_.append(buffer, static_cast<size_t>(n));

  sockaddr_storage own = {};
  socklen_t size = sizeof(own);
  getsockname(socket_, reinterpret_cast<sockaddr*>(&own), &size);
  c10d_store::Endpoint client = c10d_store::Endpoint::Of(own);
  std::set<c10d_store::Endpoint> clients;
  for (; input_.size() >= sizeof(client.port); input_.erase(0, sizeof(client.port))) {
    std::memcpy(&client.port, input_.data(), sizeof(client.port));
    clients.insert(client);
  }
  std::string answer;
  for (const auto& [endpoint, rank] : c10d_store::FindLocalRanks(clients, store_.port, marks_)) {
    answer += c10d_store::EncodeNameRank(endpoint.port, rank);
  }
  // The store reads at once. If it does not, it asks again later.
  const ssize_t sent = send(socket_, answer.data(), answer.size(), MSG_NOSIGNAL);
  if (sent != static_cast<ssize_t>(answer.size())) Disconnect();
}

}  // namespace muster::agent
