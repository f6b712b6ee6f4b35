#include "common/http/http_server.h"

#include <glog/logging.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/cleanup/cleanup.h"
#include "absl/memory/memory.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "common/status.h"
#include "common/time/now.h"
#include "common/time/time.h"

namespace muster::http {
namespace {

// Enough for a few scrapers and browsers: each connection is closed after one response, and a
// client that sends no request occupies a thread only until the timeout, or until all threads are
// occupied and another client comes.
constexpr int kThreads = 64;
// Connections that may wait for a thread; further ones are closed.
constexpr size_t kWaiting = 128;
// While others wait for a thread, a client whose request or response takes longer may be closed.
constexpr absl::Duration kSlowRequest = absl::Milliseconds(50);
constexpr absl::Duration kSlowResponse = absl::Milliseconds(500);
constexpr absl::Duration kLogInterval = absl::Hours(1);
constexpr size_t kLoggedAddresses = 4096;
// For the handshake and head of a request, and for each piece of a response.
constexpr int kTimeoutSeconds = 2;
constexpr size_t kHeadBytes = 16 << 10;
constexpr char kHeadEnd[] = "\r\n\r\n";
constexpr char kTlsHandshake = 0x16;  // first byte of a client that uses TLS

const char* ReasonPhrase(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 304:
      return "Not Modified";
    case 308:
      return "Permanent Redirect";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 429:
      return "Too Many Requests";
    case 503:
      return "Service Unavailable";
    default:
      return "Response";
  }
}

// Decodes a name or value of a query.
std::string Decode(absl::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool is_escape = text[i] == '%' && i + 2 < text.size() &&
                           absl::ascii_isxdigit(text[i + 1]) && absl::ascii_isxdigit(text[i + 2]);
    if (is_escape) {
      decoded += absl::HexStringToBytes(text.substr(i + 1, 2));
      i += 2;
    } else {
      decoded += text[i] == '+' ? ' ' : text[i];
    }
  }
  return decoded;
}

// The client's IP address; empty if the connection has ended.
std::string PeerAddress(int fd) {
  sockaddr_storage peer = {};
  socklen_t size = sizeof(peer);
  std::array<char, NI_MAXHOST> host = {};
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) != 0 ||
      getnameinfo(reinterpret_cast<sockaddr*>(&peer), size, host.data(), host.size(), nullptr, 0,
                  NI_NUMERICHOST) != 0) {
    return "";
  }
  return host.data();
}

// One client's connection, in plaintext or with TLS. Owns the socket.
class Connection {
 public:
  // Reading ends when `end` becomes readable.
  Connection(int fd, int end) : fd_(fd), end_(end) {}
  // Closes the connection when what was written is sent. A close with unread input would discard
  // what the client has not read.
  ~Connection() {
    if (ssl_ != nullptr && SSL_is_init_finished(ssl_.get()) == 1) SSL_shutdown(ssl_.get());
    ERR_clear_error();
    shutdown(fd_, SHUT_WR);
    std::array<char, 4096> buffer;
    for (int i = 0; i < 16 && recv(fd_, buffer.data(), buffer.size(), MSG_DONTWAIT) > 0; ++i) {
    }
    close(fd_);
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Reads up to the end of a request's head, after a handshake if the client begins one and `tls`
  // is not null. Returns less if it is too long, and nothing if it does not arrive in time.
  std::string ReadHead(security::TlsServer* tls) {
    std::string head;
    std::array<char, 4096> buffer;
    if (!Begin(tls)) return "";
    while (head.size() < kHeadBytes && !absl::StrContains(head, kHeadEnd)) {
      const ssize_t received = Receive(buffer.data(), static_cast<int>(buffer.size()));
      if (received <= 0) return "";
      head.append(buffer.data(), received);
    }
    return head.substr(0, head.find(kHeadEnd));
  }

  // From now on, writes block until the timeout.
  void BeginResponse() {
    int nonblocking = 0;
    ioctl(fd_, FIONBIO, &nonblocking);
    const timeval timeout = {kTimeoutSeconds, 0};
    setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
  }

  bool Send(absl::string_view bytes) {
    const int size = static_cast<int>(bytes.size());
    if (ssl_ == nullptr) return send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) == size;
    return SSL_write(ssl_.get(), bytes.data(), size) == size;
  }

  void Describe(Request& request) const {
    request.peer = PeerAddress(fd_);
    request.tls = ssl_ != nullptr;
  }

 private:
  bool Begin(security::TlsServer* tls) {
    char first = 0;
    if (!Await(POLLIN) || recv(fd_, &first, 1, MSG_PEEK) != 1) return false;
    if (tls == nullptr || first != kTlsHandshake) return true;
    ssl_ = tls->NewConnection(fd_);
    return ssl_ != nullptr && Repeat([this] { return SSL_accept(ssl_.get()); }) == 1;
  }

  ssize_t Receive(char* buffer, int size) {
    if (ssl_ != nullptr) return Repeat([&] { return SSL_read(ssl_.get(), buffer, size); });
    return Await(POLLIN) ? recv(fd_, buffer, size, 0) : 0;
  }

  // Waits until the socket has one of the events. False at the deadline or the server's end.
  bool Await(int16_t events) {
    const int64_t left_ms = absl::ToInt64Milliseconds(deadline_ - SteadyNow());
    pollfd polled[] = {{fd_, events, 0}, {end_, POLLIN, 0}};
    return left_ms > 0 && poll(polled, 2, static_cast<int>(left_ms)) > 0 && polled[1].revents == 0;
  }

  // Repeats an operation of OpenSSL while it waits for the client. Returns its result.
  template <typename Operation>
  int Repeat(Operation operation) {
    while (true) {
      ERR_clear_error();
      const int result = operation();
      const int error = result > 0 ? SSL_ERROR_NONE : SSL_get_error(ssl_.get(), result);
      if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE) return result;
      if (!Await(error == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT)) return 0;
    }
  }

  const int fd_;
  const int end_;
  const SteadyTime deadline_ = SteadyNow() + absl::Seconds(kTimeoutSeconds);
  security::OwnedSsl ssl_;  // null in plaintext
};

struct ParsedHead {
  std::string method;
  std::string path;
  Request request;
};

// Nothing if the head is malformed.
std::optional<ParsedHead> ParseHead(absl::string_view text) {
  if (text.size() >= kHeadBytes) return std::nullopt;
  const std::vector<absl::string_view> lines = absl::StrSplit(text, "\r\n");
  const std::vector<std::string> words = absl::StrSplit(lines[0], ' ');
  if (words.size() != 3 || !absl::StartsWith(words[1], "/") ||
      !absl::StartsWith(words[2], "HTTP/1.")) {
    return std::nullopt;
  }
  ParsedHead head = {.method = words[0]};
  const std::pair<std::string, std::string> target =
      absl::StrSplit(words[1], absl::MaxSplits('?', 1));
  head.path = target.first;
  head.request.query = target.second;
  for (const absl::string_view pair : absl::StrSplit(target.second, '&', absl::SkipEmpty())) {
    const std::pair<std::string, std::string> split = absl::StrSplit(pair, absl::MaxSplits('=', 1));
    head.request.parameters.emplace(Decode(split.first), Decode(split.second));
  }
  for (size_t i = 1; i < lines.size(); ++i) {
    const size_t colon = lines[i].find(':');
    const absl::string_view name = lines[i].substr(0, colon);
    if (colon == absl::string_view::npos || name.empty() ||
        name.find_first_of(" \t") != absl::string_view::npos) {
      return std::nullopt;
    }
    head.request.headers.emplace(absl::AsciiStrToLower(name),
                                 absl::StripAsciiWhitespace(lines[i].substr(colon + 1)));
  }
  return head;
}

std::string Head(const Response& response) {
  std::string head = absl::StrCat("HTTP/1.1 ", response.status, " ", ReasonPhrase(response.status),
                                  "\r\nContent-Type: ", response.content_type);
  if (!response.stream) absl::StrAppend(&head, "\r\nContent-Length: ", response.body.size());
  bool caches = false;
  for (const auto& [name, value] : response.headers) {
    caches |= name == "Cache-Control";
    absl::StrAppend(&head, "\r\n", name, ": ", value);
  }
  if (!caches) absl::StrAppend(&head, "\r\nCache-Control: no-store");
  absl::StrAppend(&head, "\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n");
  return head;
}

// Writes to a connection, in pieces that a slow client can accept within the timeout of a write.
class ConnectionStream final : public BodyStream {
 public:
  ConnectionStream(Connection& connection, const std::atomic<bool>& ending)
      : connection_(connection), ending_(ending) {}
  bool Write(absl::string_view bytes) override {
    while (IsOpen() && !bytes.empty()) {
      const absl::string_view piece = bytes.substr(0, kPieceBytes);
      broken_ = !connection_.Send(piece);
      bytes.remove_prefix(piece.size());
    }
    return IsOpen();
  }
  bool IsOpen() const override { return !ending_ && !broken_; }

 private:
  static constexpr size_t kPieceBytes = 64 << 10;
  Connection& connection_;
  const std::atomic<bool>& ending_;
  bool broken_ = false;
};

// Returns the oldest matching client of the address that has the most clients; the end if none
// matches.
template <typename Clients, typename Predicate>
auto OldestOfBusiest(Clients& clients, Predicate matches) {
  std::map<absl::string_view, int> of_address;
  for (const auto& client : clients) ++of_address[client.address];
  auto found = clients.end();
  for (auto it = clients.begin(); it != clients.end(); ++it) {
    if (!matches(*it)) continue;
    if (found == clients.end() || of_address[it->address] > of_address[found->address]) found = it;
  }
  return found;
}

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(absl::string_view address,
                                                              int max_streams,
                                                              const security::TlsFiles& tls) {
  ASSIGN_OR_RETURN(const Address parsed, ParseAddress(address));
  ASSIGN_OR_RETURN(ListeningSockets listening, Listen(parsed));
  return absl::WrapUnique(new HttpServer(std::move(listening), parsed.host, max_streams, tls));
}

HttpServer::HttpServer(ListeningSockets listening, std::string host, int max_streams,
                       const security::TlsFiles& tls)
    : address_{std::move(host), listening.port},
      max_streams_(max_streams),
      tls_(tls.cert.empty() ? nullptr : std::make_unique<security::TlsServer>(tls)),
      end_(eventfd(0, EFD_CLOEXEC)),
      acceptor_(std::move(listening.sockets)) {
  for (const int socket : acceptor_.sockets()) {
    // Accepts a connection when the client has sent something.
    setsockopt(socket, IPPROTO_TCP, TCP_DEFER_ACCEPT, &kTimeoutSeconds, sizeof(kTimeoutSeconds));
  }
  for (int i = 0; i < kThreads + max_streams; ++i) threads_.emplace_back([this] { Run(); });
  acceptor_.Start([this](int /*socket*/, int connection) { OnConnection(connection); },
                  [this] { return CloseSlow(); });
}

HttpServer::~HttpServer() {
  acceptor_.Stop();
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = write(end_, &one, sizeof(one));
  {
    absl::MutexLock lock(&mutex_);
    ending_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
  close(end_);
}

void HttpServer::OnConnection(int fd) {
  Client client = {fd, PeerAddress(fd), SteadyNow()};
  absl::MutexLock lock(&mutex_);
  waiting_.push_back(std::move(client));
  if (waiting_.size() <= kWaiting) return;
  const auto dropped = OldestOfBusiest(waiting_, [](const Client&) { return true; });
  close(dropped->fd);
  waiting_.erase(dropped);
}

bool HttpServer::CloseSlow() {
  absl::MutexLock lock(&mutex_);
  const SteadyTime now = SteadyNow();
  const auto is_slow = [now](const Client& client) {
    return (client.phase == Client::Phase::kReadsRequest && now - client.since > kSlowRequest) ||
           (client.phase == Client::Phase::kSendsResponse && now - client.since > kSlowResponse);
  };
  size_t free = idle_threads_ + absl::c_count_if(served_, [](const Client& client) {
                  return client.phase == Client::Phase::kIsClosed;
                });
  for (; free < waiting_.size(); ++free) {
    const auto slowest = OldestOfBusiest(served_, is_slow);
    if (slowest == served_.end()) break;
    shutdown(slowest->fd, SHUT_RDWR);
    slowest->phase = Client::Phase::kIsClosed;
    if (logged_.size() >= kLoggedAddresses) logged_.clear();
    const auto [logged, first] = logged_.try_emplace(slowest->address, now);
    if (!first && now - logged->second < kLogInterval) continue;
    logged->second = now;
    LOG(WARNING) << "all threads for HTTP wait for slow clients; closing connections from "
                 << slowest->address << ", also the next times, without a log line";
  }
  return !waiting_.empty();
}

void HttpServer::Run() {
  // OpenSSL writes to connections that their clients may have closed.
  sigset_t pipe;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
  while (true) {
    Clients::iterator client;
    {
      absl::MutexLock lock(&mutex_);
      const auto wake = [this] {
        mutex_.AssertHeld();
        return ending_ || !waiting_.empty();
      };
      ++idle_threads_;
      mutex_.Await(absl::Condition(&wake));
      --idle_threads_;
      if (waiting_.empty()) return;
      client = waiting_.begin();
      client->since = SteadyNow();
      served_.splice(served_.end(), waiting_, client);
    }
    Answer(client);
  }
}

void HttpServer::Handle(std::string path, Handler handler) {
  absl::MutexLock lock(&mutex_);
  handlers_[std::move(path)] = std::move(handler);
}

void HttpServer::HandlePost(const std::string& path, Handler handler) {
  Handle("POST " + path, std::move(handler));
}

std::vector<std::string> HttpServer::ListPaths() {
  absl::MutexLock lock(&mutex_);
  std::vector<std::string> paths;
  for (const auto& [path, handler] : handlers_) paths.push_back(path);
  return paths;
}

Response HttpServer::Respond(absl::string_view method, const std::string& path,
                             const Request& request) {
  const bool reads = method == "GET" || method == "HEAD";
  Handler handler;
  {
    absl::MutexLock lock(&mutex_);
    const auto it = handlers_.find(reads ? path : absl::StrCat(method, " ", path));
    if (it == handlers_.end()) {
      return reads ? Response{404, kPlainText, "no such page\n"}
                   : Response{405, kPlainText, "only GET and HEAD\n"};
    }
    handler = it->second;
  }
  return handler(request);
}

bool HttpServer::ReserveStream(Response& response) {
  if (!response.stream) return false;
  if (streams_.fetch_add(1) < max_streams_) return true;
  --streams_;
  response = {503, kPlainText,
              absl::StrCat("too many open streams; the limit is ", max_streams_,
                           ": close a page that is not needed\n")};
  return false;
}

void HttpServer::Enter(Clients::iterator client, Client::Phase phase) {
  absl::MutexLock lock(&mutex_);
  if (client->phase != Client::Phase::kIsClosed) client->phase = phase;
}

void HttpServer::Answer(Clients::iterator client) {
  Connection connection(client->fd, end_);
  // Before the descriptor is closed.
  const absl::Cleanup forget = [this, client] {
    absl::MutexLock lock(&mutex_);
    served_.erase(client);
  };
  const std::string text = connection.ReadHead(tls_.get());
  if (text.empty()) return;
  std::optional<ParsedHead> parsed = ParseHead(text);
  if (parsed.has_value()) connection.Describe(parsed->request);
  Enter(client, Client::Phase::kSendsResponse);
  connection.BeginResponse();
  Response response = parsed.has_value() ? Respond(parsed->method, parsed->path, parsed->request)
                                         : Response{400, kPlainText, "malformed request\n"};
  const bool body = !parsed.has_value() || parsed->method != "HEAD";
  if (!body) response.stream = nullptr;
  const bool streams = ReserveStream(response);
  ConnectionStream stream(connection, ending_);
  const bool open = stream.Write(absl::StrCat(Head(response), body ? response.body : ""));
  if (!streams) return;
  Enter(client, Client::Phase::kStreams);
  if (open) response.stream(stream);
  --streams_;
}

}  // namespace muster::http
