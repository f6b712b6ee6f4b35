#include "worker/c10d_store/server.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <set>
#include <utility>

#include "worker/c10d_store/wait_diagnosis.h"
#include "worker/shim/clock.h"
#include "worker/shim/fields.h"

namespace muster::c10d_store {
namespace {

constexpr int64_t kTickMs = 250;
constexpr int kMostEvents = 64;
constexpr size_t kReadBytes = 64 << 10;
// Between searches for the ranks of unknown clients; doubles up to the second value.
constexpr int64_t kFirstIdentifyMs = 250;
constexpr int64_t kLastIdentifyMs = 16'000;
constexpr size_t kMostProblems = 8;
// In epoll's data, listeners follow after the connections.
constexpr uint64_t kFirstListener = uint64_t{1} << 32;

}  // namespace

Server::Server(ServerOptions options)
    : options_(std::move(options)),
      store_([this](ConnectionId id, const std::string& bytes) { Send(id, bytes); }),
      roster_(options_.world_size) {}

Server::~Server() {
  for (const auto& [id, connection] : connections_) close(connection.fd);
  for (const int listener : options_.listeners) close(listener);
  if (epoll_ >= 0) close(epoll_);
}

bool Server::Start() {
  epoll_ = epoll_create1(EPOLL_CLOEXEC);
  if (epoll_ < 0) return false;
  accepting_ = false;
  SetAccepting(true);
  return shim::WriteFileAtomically(options_.status_path, EncodeStatus(status_), false);
}

void Server::SetAccepting(bool accepting) {
  if (accepting == std::exchange(accepting_, accepting)) return;
  for (size_t i = 0; i < options_.listeners.size(); ++i) {
    epoll_event event = {};
    event.events = EPOLLIN;
    event.data.u64 = kFirstListener + i;
    epoll_ctl(epoll_, accepting ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, options_.listeners[i], &event);
  }
}

void Server::Poll(int timeout_ms) {
  const int delay = TickDelayMs(shim::BootMs());
  if (delay >= 0 && (timeout_ms < 0 || delay < timeout_ms)) timeout_ms = delay;
  epoll_event events[kMostEvents];
  const int count = epoll_wait(epoll_, events, kMostEvents, timeout_ms);
  for (int i = 0; i < count; ++i) {
    const uint64_t source = events[i].data.u64;
    if (source >= kFirstListener) {
      Accept(options_.listeners[source - kFirstListener]);
    } else {
      OnEvents(static_cast<ConnectionId>(source), events[i].events);
    }
  }
  for (const ConnectionId id : std::exchange(broken_, {})) Close(id);
  const int64_t now = shim::BootMs();
  if (TickDelayMs(now) == 0) Tick(now);
}

void Server::Accept(int listener) {
  while (true) {
    sockaddr_storage address = {};
    socklen_t size = sizeof(address);
    const int fd = accept4(listener, reinterpret_cast<sockaddr*>(&address), &size,
                           SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0 && (errno == EMFILE || errno == ENFILE)) return SetAccepting(false);
    if (fd < 0 && (errno == EINTR || errno == ECONNABORTED)) continue;
    if (fd < 0) return;
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    // Notices clients whose machine has disappeared.
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    const Endpoint peer = Endpoint::Of(address);
    const ConnectionId id = roster_.Add(peer.ToString());
    Connection& connection = connections_[id];
    connection.fd = fd;
    connection.peer = peer;
    epoll_event event = {};
    event.events = EPOLLIN;
    event.data.u64 = id;
    epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event);
    identify_interval_ms_ = kFirstIdentifyMs;
    identify_at_ms_ = shim::BootMs() + identify_interval_ms_;
  }
}

void Server::OnEvents(ConnectionId id, uint32_t events) {
  const auto it = connections_.find(id);
  if (it == connections_.end()) return;
  if ((events & EPOLLOUT) != 0) {
    if (!Flush(id)) return Close(id);
    if (it->second.is_writing) return;
    return HandleRequests(id);
  }
  if (!it->second.is_writing) return Read(id);
  if ((events & (EPOLLERR | EPOLLHUP)) != 0) Close(id);
}

void Server::Read(ConnectionId id) {
  Connection& connection = connections_.at(id);
  char buffer[kReadBytes];
  const ssize_t n = recv(connection.fd, buffer, sizeof(buffer), 0);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n <= 0) return Close(id);
  connection.decoder.Append({buffer, static_cast<size_t>(n)});
  HandleRequests(id);
}

void Server::HandleRequests(ConnectionId id) {
  Connection& connection = connections_.at(id);
  while (!connection.is_writing) {
    auto next = connection.decoder.Next();
    if (std::holds_alternative<Incomplete>(next)) return;
    if (const auto* const refused = std::get_if<Refused>(&next)) return Refuse(id, refused->reason);
    if (const auto* const of_worker = std::get_if<WorkerRequest>(&next)) {
      OnWorkerRequest(id, *of_worker);
      continue;
    }
    auto& request = std::get<Request>(next);
    const auto* const set = std::get_if<Set>(&request);
    if (set != nullptr && !roster_.RankOf(id).has_value()) {
      if (const auto rank = RankInKey(set->key)) roster_.SetRank(id, *rank);
    }
    const std::optional<std::string> reason = store_.Handle(id, std::move(request), shim::BootMs());
    if (reason.has_value()) return Refuse(id, *reason);
  }
}

void Server::OnWorkerRequest(ConnectionId id, const WorkerRequest& request) {
  if (std::holds_alternative<Introduce>(request)) {
    workers_.insert(id);
    roster_.Close(id);  // not a client
    identify_at_ms_ = shim::BootMs();
    return;
  }
  const auto& name = std::get<NameRank>(request);
  const Endpoint client = {connections_.at(id).peer.address, name.port};
  if (workers_.count(id) == 0) return;
  for (const ConnectionId unknown : roster_.Unknown()) {
    if (connections_.at(unknown).peer == client) roster_.SetRank(unknown, name.rank);
  }
}

void Server::AskWorkers() {
  for (const ConnectionId worker : workers_) {
    for (const ConnectionId unknown : roster_.Unknown()) {
      const Endpoint& client = connections_.at(unknown).peer;
      if (client.address != connections_.at(worker).peer.address) continue;
      Send(worker, std::string(reinterpret_cast<const char*>(&client.port), sizeof(client.port)));
    }
  }
}

void Server::Send(ConnectionId id, const std::string& bytes) {
  const auto it = connections_.find(id);
  if (it == connections_.end()) return;
  it->second.output += bytes;
  // Not closed here: the store is answering.
  if (!it->second.is_writing && !Flush(id)) broken_.push_back(id);
}

bool Server::Flush(ConnectionId id) {
  Connection& connection = connections_.at(id);
  size_t sent = 0;
  bool ok = true;
  while (sent < connection.output.size()) {
    const ssize_t n = send(connection.fd, connection.output.data() + sent,
                           connection.output.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    ok = n >= 0 || errno == EAGAIN;
    if (n < 0) break;
    sent += static_cast<size_t>(n);
  }
  connection.output.erase(0, sent);
  const bool is_writing = !connection.output.empty();
  if (is_writing != connection.is_writing) {
    connection.is_writing = is_writing;
    epoll_event event = {};
    event.events = is_writing ? EPOLLOUT : EPOLLIN;
    event.data.u64 = id;
    epoll_ctl(epoll_, EPOLL_CTL_MOD, connection.fd, &event);
  }
  return ok;
}

void Server::Close(ConnectionId id) {
  const auto it = connections_.find(id);
  if (it == connections_.end()) return;
  close(it->second.fd);
  connections_.erase(it);
  store_.OnClose(id);
  roster_.Close(id);
  workers_.erase(id);
  SetAccepting(true);
}

void Server::Refuse(ConnectionId id, const std::string& reason) {
  Identify();
  ClientProblem problem;
  problem.client = roster_.NameOf(id);
  problem.text = "disconnected from the c10d store: " + reason;
  problem.rank = roster_.RankOf(id);
  std::fprintf(stderr, "muster-c10d-store: %s was %s\n", problem.client.c_str(),
               problem.text.c_str());
  if (status_.problems.size() < kMostProblems) {
    status_.problems.push_back(std::move(problem));
    WriteStatus();
  }
  broken_.push_back(id);
}

int Server::TickDelayMs(int64_t now_ms) const {
  int64_t at_ms = INT64_MAX;
  if (!store_.waits().empty() || !status_.waits.empty() || !accepting_) {
    at_ms = ticked_ms_ + kTickMs;
  }
  if (roster_.HasUnknown()) at_ms = std::min(at_ms, identify_at_ms_);
  if (at_ms == INT64_MAX) return -1;
  return static_cast<int>(std::clamp<int64_t>(at_ms - now_ms, 0, kLastIdentifyMs));
}

void Server::Tick(int64_t now_ms) {
  ticked_ms_ = now_ms;
  SetAccepting(true);
  if (roster_.HasUnknown() && now_ms >= identify_at_ms_) {
    Identify();
    AskWorkers();
    identify_interval_ms_ = std::min(2 * identify_interval_ms_, kLastIdentifyMs);
    identify_at_ms_ = now_ms + identify_interval_ms_;
  }
  std::vector<WaitReport> waits = DiagnoseWaits(store_, roster_, now_ms);
  if (waits == status_.waits) return;
  status_.waits = std::move(waits);
  WriteStatus();
}

void Server::Identify() {
  std::set<Endpoint> clients;
  const std::vector<ConnectionId> unknown = roster_.Unknown();
  for (const ConnectionId id : unknown) clients.insert(connections_.at(id).peer);
  const std::map<Endpoint, uint32_t> ranks = FindLocalRanks(clients, options_.port, options_.marks);
  for (const ConnectionId id : unknown) {
    const auto rank = ranks.find(connections_.at(id).peer);
    if (rank != ranks.end()) roster_.SetRank(id, rank->second);
  }
}

void Server::WriteStatus() {
  if (!shim::WriteFileAtomically(options_.status_path, EncodeStatus(status_), false)) {
    std::fprintf(stderr, "muster-c10d-store: cannot write %s\n", options_.status_path.c_str());
  }
}

}  // namespace muster::c10d_store
