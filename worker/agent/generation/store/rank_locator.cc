#include "worker/agent/generation/store/rank_locator.h"

#include <netdb.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/time/now.h"
#include "worker/c10d_store/local_peers.h"
#include "worker/c10d_store/protocol.h"

namespace muster::agent {
namespace {

constexpr absl::Duration kRetryInterval = absl::Seconds(2);

}  // namespace

void RankLocator::Tick() {
  if (socket_.get() >= 0 || Now().steady < retry_at_) return;
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
  socket_ = OwnedFd(socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const bool started = connect(socket_.get(), found->ai_addr, found->ai_addrlen) == 0 ||
                       (socket_.get() >= 0 && errno == EINPROGRESS);
  freeaddrinfo(found);
  if (started) return loop_.WatchWritable(socket_.get(), [this] { OnConnected(); });
  socket_.Close();
}

void RankLocator::Disconnect() {
  if (socket_.get() < 0) return;
  loop_.Unwatch(socket_.get());
  socket_.Close();
  input_.clear();
}

void RankLocator::OnConnected() {
  // Fails if the connection was refused. The socket's buffer is empty.
  const std::string_view introduction = c10d_store::kIntroduction;
  const ssize_t sent = send(socket_.get(), introduction.data(), introduction.size(), MSG_NOSIGNAL);
  if (sent != static_cast<ssize_t>(introduction.size())) return Disconnect();
  loop_.Unwatch(socket_.get());
  loop_.Watch(socket_.get(), [this] { OnReadable(); });
}

void RankLocator::OnReadable() {
  char buffer[1024];
  const ssize_t n = recv(socket_.get(), buffer, sizeof(buffer), 0);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n <= 0) return Disconnect();
  input_.append(buffer, static_cast<size_t>(n));

  sockaddr_storage own = {};
  socklen_t size = sizeof(own);
  getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&own), &size);
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
  const ssize_t sent = send(socket_.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
  if (sent != static_cast<ssize_t>(answer.size())) Disconnect();
}

}  // namespace muster::agent
