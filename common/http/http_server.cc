#include "common/http/http_server.h"

#include <civetweb.h>
#include <glog/logging.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <thread>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "common/status.h"
#include "common/steady_notification.h"

namespace muster::http {
namespace {

// Enough for a few scrapers and browsers: each connection is closed after one response, and a
// client that sends no request occupies a thread only until the timeout.
constexpr int kThreads = 16;
constexpr char kRequestTimeoutMs[] = "2000";

int OnLog(const mg_connection* /*connection*/, const char* message) {
  LOG(WARNING) << "http: " << message;
  return 1;
}

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
std::string Decode(const std::string& text) {
  std::string decoded(text.size() + 1, '\0');
  const int length = mg_url_decode(text.data(), static_cast<int>(text.size()), decoded.data(),
                                   static_cast<int>(decoded.size()), /*is_form_url_encoded=*/1);
  decoded.resize(std::max(length, 0));
  return decoded;
}

Request ParseRequest(const mg_request_info& info) {
  Request request;
  request.query = info.query_string == nullptr ? "" : info.query_string;
  for (const absl::string_view pair : absl::StrSplit(request.query, '&', absl::SkipEmpty())) {
    const std::pair<std::string, std::string> split = absl::StrSplit(pair, absl::MaxSplits('=', 1));
    request.parameters.emplace(Decode(split.first), Decode(split.second));
  }
  for (int i = 0; i < info.num_headers; ++i) {
    request.headers.emplace(absl::AsciiStrToLower(info.http_headers[i].name),
                            info.http_headers[i].value);
  }
  return request;
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
  ConnectionStream(mg_connection* connection, const std::atomic<bool>& ending)
      : connection_(connection), ending_(ending) {}
  bool Write(absl::string_view bytes) override {
    while (IsOpen() && !bytes.empty()) {
      const absl::string_view piece = bytes.substr(0, kPieceBytes);
      broken_ = mg_write(connection_, piece.data(), piece.size()) != static_cast<int>(piece.size());
      bytes.remove_prefix(piece.size());
    }
    return IsOpen();
  }
  bool IsOpen() const override { return !ending_ && !broken_; }

 private:
  static constexpr size_t kPieceBytes = 64 << 10;
  mg_connection* const connection_;
  const std::atomic<bool>& ending_;
  bool broken_ = false;
};

// Opens a connection to `address` and closes it, which wakes the thread that listens there.
void WakeListener(const Address& address) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (getaddrinfo(address.host.c_str(), absl::StrCat(address.port).c_str(), &hints, &found) != 0) {
    return;
  }
  const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd >= 0) {
    (void)connect(fd, found->ai_addr, found->ai_addrlen);
    close(fd);
  }
  freeaddrinfo(found);
}

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(absl::string_view address,
                                                              int max_streams) {
  ASSIGN_OR_RETURN(Address parsed, ParseAddress(address));
  // CivetWeb accepts only numeric addresses.
  if (parsed.host == "localhost") parsed.host = "127.0.0.1";
  // CivetWeb logs the reason of a failure instead of returning it.
  RETURN_IF_ERROR(CheckListen(parsed));
  auto server = absl::WrapUnique(new HttpServer);
  server->address_ = parsed;
  server->max_streams_ = max_streams;

  static const unsigned features = mg_init_library(MG_FEATURES_DEFAULT);
  (void)features;
  mg_callbacks callbacks = {};
  callbacks.begin_request = &HttpServer::OnRequest;
  callbacks.log_message = &OnLog;
  const std::string port = parsed.ToString();
  const std::string threads = absl::StrCat(kThreads + max_streams);
  const char* options[] = {
      "listening_ports", port.c_str(),        "num_threads", threads.c_str(), "request_timeout_ms",
      kRequestTimeoutMs, "enable_keep_alive", "no",          nullptr};
  mg_init_data init = {&callbacks, server.get(), options};
  std::array<char, 256> text = {};
  unsigned code = 0;
  mg_error_data error = {&code, text.data(), text.size()};
  server->context_ = mg_start2(&init, &error);
  if (server->context_ == nullptr) {
    return absl::UnavailableError(absl::StrCat("listen on ", port, ": ", text.data()));
  }
  mg_server_port listening = {};
  if (mg_get_server_ports(server->context_, 1, &listening) != 1) {
    return absl::InternalError(absl::StrCat("listen on ", port, ": no port was opened"));
  }
  server->address_.port = static_cast<uint16_t>(listening.port);
  return server;
}

HttpServer::~HttpServer() {
  if (context_ == nullptr) return;
  ending_ = true;
  // CivetWeb checks its stop flag only when its two-second poll of the listening socket returns;
  // connections end the poll early.
  SteadyNotification stopped;
  std::thread stop([this, &stopped] {
    mg_stop(context_);
    stopped.Notify();
  });
  while (!stopped.WaitFor(absl::Milliseconds(2))) WakeListener(address_);
  stop.join();
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

int HttpServer::OnRequest(mg_connection* connection) {
  const mg_request_info* info = mg_get_request_info(connection);
  auto* server = static_cast<HttpServer*>(info->user_data);
  const absl::string_view method = info->request_method;
  Response response = server->Respond(method, info->local_uri == nullptr ? "" : info->local_uri,
                                      ParseRequest(*info));
  if (method == "HEAD") response.stream = nullptr;
  const bool streams = server->ReserveStream(response);
  const std::string head = Head(response);
  ConnectionStream stream(connection, server->ending_);
  bool open = mg_write(connection, head.data(), head.size()) == static_cast<int>(head.size());
  if (open && method != "HEAD") open = stream.Write(response.body);
  if (streams) {
    if (open) response.stream(stream);
    --server->streams_;
  }
  return response.status;
}

}  // namespace muster::http
