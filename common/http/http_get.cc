#include "common/http/http_get.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/files/owned_fd.h"
#include "common/status.h"

namespace muster::http {

namespace {

// A connection on which the request has been sent.
absl::StatusOr<OwnedFd> SendRequest(const Address& address, absl::string_view target,
                                    absl::string_view method,
                                    const std::vector<std::string>& headers) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* peer = nullptr;
  const int error =
      getaddrinfo(address.host.c_str(), absl::StrCat(address.port).c_str(), &hints, &peer);
  if (error != 0) {
    return absl::InvalidArgumentError(absl::StrCat(address.host, ": ", gai_strerror(error)));
  }
  const absl::Cleanup free_peer = [peer] { freeaddrinfo(peer); };
  OwnedFd connection(socket(peer->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (connection.get() < 0) return ErrnoStatus(errno, "socket");
  if (connect(connection.get(), peer->ai_addr, peer->ai_addrlen) != 0) {
    return ErrnoStatus(errno, absl::StrCat("connect to ", address.ToString()));
  }
  std::string request = absl::StrCat(method, " ", target, " HTTP/1.1\r\nConnection: close\r\n");
  const bool names_host = std::any_of(headers.begin(), headers.end(), [](const std::string& line) {
    return absl::StartsWith(line, "Host:");
  });
  if (!names_host) absl::StrAppend(&request, "Host: ", address.ToString(), "\r\n");
  for (const std::string& line : headers) absl::StrAppend(&request, line, "\r\n");
  absl::StrAppend(&request, "\r\n");
  if (send(connection.get(), request.data(), request.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(request.size())) {
    return ErrnoStatus(errno, "send");
  }
  return connection;
}

}  // namespace

absl::StatusOr<GetResult> Get(const Address& address, absl::string_view target,
                              absl::string_view method, const std::vector<std::string>& headers) {
  ASSIGN_OR_RETURN(const OwnedFd connection, SendRequest(address, target, method, headers));
  std::string response;
  std::array<char, 4096> buffer;
  ssize_t received = 0;
  while ((received = recv(connection.get(), buffer.data(), buffer.size(), 0)) > 0) {
    response.append(buffer.data(), received);
  }
  if (received < 0) return ErrnoStatus(errno, "recv");
  const size_t head_end = response.find("\r\n\r\n");
  GetResult result;
  if (head_end == std::string::npos || response.size() < 12 ||
      !absl::SimpleAtoi(response.substr(9, 3), &result.status)) {
    return absl::DataLossError(absl::StrCat("not an HTTP response: ", response));
  }
  result.headers = response.substr(0, head_end);
  result.body = response.substr(head_end + 4);
  return result;
}

absl::Status Stream(const Address& address, absl::string_view target,
                    const std::function<bool(absl::string_view bytes)>& on_bytes,
                    const std::vector<std::string>& headers) {
  ASSIGN_OR_RETURN(const OwnedFd connection, SendRequest(address, target, "GET", headers));
  const timeval interval = {0, 100'000};
  setsockopt(connection.get(), SOL_SOCKET, SO_RCVTIMEO, &interval, sizeof(interval));
  std::array<char, 4096> buffer;
  for (;;) {
    const ssize_t received = recv(connection.get(), buffer.data(), buffer.size(), 0);
    if (received == 0) return absl::OkStatus();
    if (received < 0 && errno != EAGAIN) return ErrnoStatus(errno, "recv");
    if (!on_bytes({buffer.data(), static_cast<size_t>(std::max<ssize_t>(received, 0))})) {
      return absl::OkStatus();
    }
  }
}

}  // namespace muster::http
