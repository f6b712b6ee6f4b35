#include "common/http/http_server.h"

#include <poll.h>
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

#include "absl/memory/memory.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "common/now.h"
#include "common/status.h"
#include "common/time.h"

namespace muster::http {
namespace {

// Enough for a few scrapers and browsers: each connection is closed after one response, and a
// client that sends no request occupies a thread only until the timeout.
constexpr int kThreads = 16;
// Connections that may wait for a thread; further ones are closed.
constexpr size_t kWaiting = 128;
// For the head of a request, and for each piece of a response.
constexpr int kTimeoutSeconds = 2;
constexpr size_t kHeadBytes = 16 << 10;
constexpr char kHeadEnd[] = "\r\n\r\n";

const char* ReasonPhrase(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 304:
      return "Not Modified";
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

// Reads up to the end of a request's head. Returns less if it is too long, and nothing if it does
// not arrive in time or `end` becomes readable.
std::string ReadHead(int fd, int end) {
  const SteadyTime deadline = SteadyNow() + absl::Seconds(kTimeoutSeconds);
  std::string head;
  std::array<char, 4096> buffer;
  while (head.size() < kHeadBytes && !absl::StrContains(head, kHeadEnd)) {
    const int64_t left_ms = absl::ToInt64Milliseconds(deadline - SteadyNow());
    pollfd polled[] = {{fd, POLLIN, 0}, {end, POLLIN, 0}};
    if (left_ms <= 0 || poll(polled, 2, static_cast<int>(left_ms)) < 1) return "";
    const ssize_t received = polled[1].revents != 0 ? 0 : recv(fd, buffer.data(), buffer.size(), 0);
    if (received <= 0) return "";
    head.append(buffer.data(), received);
  }
  return head.substr(0, head.find(kHeadEnd));
}

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
  ConnectionStream(int fd, const std::atomic<bool>& ending) : fd_(fd), ending_(ending) {}
  bool Write(absl::string_view bytes) override {
    while (IsOpen() && !bytes.empty()) {
      const absl::string_view piece = bytes.substr(0, kPieceBytes);
      const ssize_t sent = send(fd_, piece.data(), piece.size(), MSG_NOSIGNAL);
      broken_ = sent != static_cast<ssize_t>(piece.size());
      bytes.remove_prefix(piece.size());
    }
    return IsOpen();
  }
  bool IsOpen() const override { return !ending_ && !broken_; }

 private:
  static constexpr size_t kPieceBytes = 64 << 10;
  const int fd_;
  const std::atomic<bool>& ending_;
  bool broken_ = false;
};

// Sends what was written and closes the connection. A close with unread input would discard what
// the client has not read.
void CloseConnection(int fd) {
  shutdown(fd, SHUT_WR);
  std::array<char, 4096> buffer;
  for (int i = 0; i < 16 && recv(fd, buffer.data(), buffer.size(), MSG_DONTWAIT) > 0; ++i) {
  }
  close(fd);
}

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(absl::string_view address,
                                                              int max_streams) {
  ASSIGN_OR_RETURN(const Address parsed, ParseAddress(address));
  ASSIGN_OR_RETURN(ListeningSockets listening, Listen(parsed));
  return absl::WrapUnique(new HttpServer(std::move(listening), parsed.host, max_streams));
}

HttpServer::HttpServer(ListeningSockets listening, std::string host, int max_streams)
    : address_{std::move(host), listening.port},
      max_streams_(max_streams),
      end_(eventfd(0, EFD_CLOEXEC)),
      acceptor_(std::move(listening.sockets)) {
  for (int i = 0; i < kThreads + max_streams; ++i) threads_.emplace_back([this] { Run(); });
  acceptor_.Start([this](int /*socket*/, int connection) { OnConnection(connection); });
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
  absl::MutexLock lock(&mutex_);
  connections_.push_back(fd);
  if (connections_.size() <= kWaiting) return;
  close(connections_.back());
  connections_.pop_back();
}

void HttpServer::Run() {
  while (true) {
    int fd = -1;
    {
      absl::MutexLock lock(&mutex_);
      const auto wake = [this] {
        mutex_.AssertHeld();
        return ending_ || !connections_.empty();
      };
      mutex_.Await(absl::Condition(&wake));
      if (connections_.empty()) return;
      fd = connections_.front();
      connections_.pop_front();
    }
    Answer(fd);
    CloseConnection(fd);
  }
}

void HttpServer::Handle(std::string path, Handler handler) {
  absl::MutexLock lock(&mutex_);
  handlers_[std::move(path)] = std::move(handler);
}

Response HttpServer::Respond(absl::string_view method, const std::string& path,
                             const Request& request) {
  if (method != "GET" && method != "HEAD") return {405, kPlainText, "only GET and HEAD\n"};
  Handler handler;
  {
    absl::MutexLock lock(&mutex_);
    const auto it = handlers_.find(path);
    if (it == handlers_.end()) return {404, kPlainText, "no such page\n"};
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

void HttpServer::Answer(int fd) {
  int nonblocking = 0;
  ioctl(fd, FIONBIO, &nonblocking);
  const timeval timeout = {kTimeoutSeconds, 0};
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
  const std::string text = ReadHead(fd, end_);
  if (text.empty()) return;
  const std::optional<ParsedHead> parsed = ParseHead(text);
  Response response = parsed.has_value() ? Respond(parsed->method, parsed->path, parsed->request)
                                         : Response{400, kPlainText, "malformed request\n"};
  const bool body = !parsed.has_value() || parsed->method != "HEAD";
  if (!body) response.stream = nullptr;
  const bool streams = ReserveStream(response);
  ConnectionStream stream(fd, ending_);
  const bool open = stream.Write(absl::StrCat(Head(response), body ? response.body : ""));
  if (!streams) return;
  if (open) response.stream(stream);
  --streams_;
}

}  // namespace muster::http
