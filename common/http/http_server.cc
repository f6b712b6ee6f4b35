#include "common/http/http_server.h"

#include <civetweb.h>
#include <glog/logging.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <thread>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/status.h"

namespace muster::http {
namespace {

// Enough for a few scrapers and browsers: each connection is closed after one response, and a
// client that sends no request occupies a thread only until the timeout.
constexpr char kThreads[] = "16";
constexpr char kRequestTimeoutMs[] = "2000";

int OnLog(const mg_connection* /*connection*/, const char* message) {
  LOG(WARNING) << "http: " << message;
  return 1;
}

const char* ReasonPhrase(int status) {
  switch (status) {
    case 200:
      return "OK";
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

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(absl::string_view address) {
  ASSIGN_OR_RETURN(Address parsed, ParseAddress(address));
  // CivetWeb accepts only numeric addresses.
  if (parsed.host == "localhost") parsed.host = "127.0.0.1";
  // CivetWeb logs the reason of a failure instead of returning it.
  RETURN_IF_ERROR(CheckListen(parsed));
  auto server = absl::WrapUnique(new HttpServer);
  server->address_ = parsed;

  static const unsigned features = mg_init_library(MG_FEATURES_DEFAULT);
  (void)features;
  mg_callbacks callbacks = {};
  callbacks.begin_request = &HttpServer::OnRequest;
  callbacks.log_message = &OnLog;
  const std::string port = parsed.ToString();
  const char* options[] = {
      "listening_ports", port.c_str(),        "num_threads", kThreads, "request_timeout_ms",
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
  // CivetWeb checks its stop flag only when its two-second poll of the listening socket returns;
  // connections end the poll early.
  absl::Notification stopped;
  std::thread stop([this, &stopped] {
    mg_stop(context_);
    stopped.Notify();
  });
  while (!stopped.WaitForNotificationWithTimeout(absl::Milliseconds(2))) WakeListener(address_);
  stop.join();
}

void HttpServer::Handle(std::string path, Handler handler) {
  absl::MutexLock lock(&mutex_);
  handlers_[std::move(path)] = std::move(handler);
}

Response HttpServer::Respond(absl::string_view method, const std::string& path,
                             absl::string_view query) {
  if (method != "GET" && method != "HEAD") return {405, kPlainText, "only GET and HEAD\n"};
  Handler handler;
  {
    absl::MutexLock lock(&mutex_);
    const auto it = handlers_.find(path);
    if (it == handlers_.end()) return {404, kPlainText, "no such page\n"};
    handler = it->second;
  }
  return handler(query);
}

int HttpServer::OnRequest(mg_connection* connection) {
  const mg_request_info* request = mg_get_request_info(connection);
  auto* server = static_cast<HttpServer*>(request->user_data);
  const absl::string_view method = request->request_method;
  const Response response =
      server->Respond(method, request->local_uri == nullptr ? "" : request->local_uri,
                      request->query_string == nullptr ? "" : request->query_string);
  const std::string head = absl::StrCat(
      "HTTP/1.1 ", response.status, " ", ReasonPhrase(response.status),
      "\r\nContent-Type: ", response.content_type, "\r\nContent-Length: ", response.body.size(),
      "\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff"
      "\r\nConnection: close\r\n\r\n");
  mg_write(connection, head.data(), head.size());
  if (method != "HEAD") mg_write(connection, response.body.data(), response.body.size());
  return response.status;
}

}  // namespace muster::http
