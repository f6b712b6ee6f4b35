// HTTP requests to a daemon.
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "common/http/http_server.h"
#include "tests/fuzz/check.h"

namespace muster {
namespace {

// A closed connection keeps its two ports for a minute, so that a client has fewer than 30,000 to a
// server's port.
constexpr int kInputsPerServer = 20000;

std::unique_ptr<http::HttpServer> Start() {
  auto server = http::HttpServer::Start("127.0.0.1:0");
  fuzz::CheckOk(server.status(), "the server starts");
  (*server)->Handle("/a", [](const http::Request& request) {
    std::string body = request.query;
    for (const auto& [name, value] : request.parameters) body += name + value;
    for (const auto& [name, value] : request.headers) body += name + value;
    return http::Response{200, http::kPlainText, body};
  });
  return *std::move(server);
}

// The response to a client that sends these bytes and no more.
std::string Exchange(uint16_t port, const std::string& bytes) {
  sockaddr_in peer = {};
  peer.sin_family = AF_INET;
  peer.sin_port = htons(port);
  peer.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool connected = connect(fd, reinterpret_cast<sockaddr*>(&peer), sizeof(peer)) == 0;
  fuzz::Check(connected, "the server accepts connections");
  (void)send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  shutdown(fd, SHUT_WR);
  std::string response;
  char buffer[4096];
  for (ssize_t n = 0; (n = recv(fd, buffer, sizeof(buffer), 0)) > 0;) response.append(buffer, n);
  close(fd);
  return response;
}

}  // namespace
}  // namespace muster

// OpenSSL's state of each of the server's threads is where LeakSanitizer does not look.
extern "C" const char* __lsan_default_suppressions() { return "leak:libcrypto"; }

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster;
  static std::unique_ptr<http::HttpServer> server;
  static int inputs = 0;
  if (inputs++ % kInputsPerServer == 0) server = Start();
  const std::string bytes = fuzz::Text(data, size);
  const std::string response = Exchange(server->address().port, bytes);
  // A busy server may close a connection without a response.
  fuzz::Check(response.empty() || absl::StartsWith(response, "HTTP/1.1 "),
              "a response is one of HTTP", response);
  const absl::string_view head = absl::string_view(response).substr(0, response.find("\r\n\r\n"));
  fuzz::Check(head.size() < 500, "requests add nothing to the head of the response", response);
  return 0;
}
