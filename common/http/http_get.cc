#include "common/http/http_get.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace muster::http {

absl::StatusOr<GetResult> Get(const Address& address, absl::string_view target,
                              absl::string_view method) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return ErrnoStatus(errno, "socket");
  absl::Cleanup close_fd = [fd] { close(fd); };
  sockaddr_in peer = {};
  peer.sin_family = AF_INET;
  peer.sin_port = htons(address.port);
  if (inet_pton(AF_INET, address.host.c_str(), &peer.sin_addr) != 1) {
    return absl::InvalidArgumentError(absl::StrCat(address.host, " is not an IPv4 address"));
  }
  if (connect(fd, reinterpret_cast<sockaddr*>(&peer), sizeof(peer)) != 0) {
    return ErrnoStatus(errno, absl::StrCat("connect to ", address.ToString()));
  }
  const std::string request =
      absl::StrCat(method, " ", target, " HTTP/1.1\r\nHost: ", address.ToString(),
                   "\r\nConnection: close\r\n\r\n");
  if (send(fd, request.data(), request.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(request.size())) {
    return ErrnoStatus(errno, "send");
  }
  std::string response;
  std::array<char, 4096> buffer;
  ssize_t received = 0;
  while ((received = recv(fd, buffer.data(), buffer.size(), 0)) > 0) {
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

}  // namespace muster::http
