#include "worker/mpi/handover.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/status.h"

namespace muster::mpi {
namespace {

// Far more than Open MPI's variables and those of a job need.
constexpr uint32_t kMaxEnvironmentBytes = 16 << 20;

// Calls `use` with the address of the rank's socket. The path goes through a descriptor of the
// directory because addresses are limited to about 100 bytes.
template <typename Use>
absl::StatusOr<OwnedFd> WithAddress(const std::string& directory, uint32_t local_rank, Use use) {
  const OwnedFd folder(open(directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() < 0) return ErrnoStatus(errno, directory);
  OwnedFd connection(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (connection.get() < 0) return ErrnoStatus(errno, "socket");
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const std::string path = absl::StrCat("/proc/self/fd/", folder.get(), "/rank-", local_rank);
  std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
  if (use(connection.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address))) {
    return connection;
  }
  return ErrnoStatus(errno, absl::StrCat(directory, "/rank-", local_rank));
}

absl::Status SendAll(int fd, const char* data, size_t size) {
  while (size > 0) {
    const ssize_t n = send(fd, data, size, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, "send");
    data += n;
    size -= static_cast<size_t>(n);
  }
  return absl::OkStatus();
}

bool ReceiveAll(int fd, char* data, size_t size) {
  while (size > 0) {
    const ssize_t n = recv(fd, data, size, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    data += n;
    size -= static_cast<size_t>(n);
  }
  return true;
}

}  // namespace

absl::StatusOr<OwnedFd> ListenForProxy(const std::string& directory, uint32_t local_rank) {
  return WithAddress(directory, local_rank, [](int fd, const sockaddr* address, socklen_t size) {
    return bind(fd, address, size) == 0 && listen(fd, 1) == 0;
  });
}

absl::StatusOr<OwnedFd> ConnectToRank(const std::string& directory, uint32_t local_rank) {
  return WithAddress(directory, local_rank, [](int fd, const sockaddr* address, socklen_t size) {
    return connect(fd, address, size) == 0;
  });
}

absl::Status SendEnvironment(int fd, const Environment& environment) {
  std::string text;
  for (const std::string& entry : environment) text.append(entry).push_back('\0');
  const auto size = static_cast<uint32_t>(text.size());
  RETURN_IF_ERROR(SendAll(fd, reinterpret_cast<const char*>(&size), sizeof(size)));
  return SendAll(fd, text.data(), text.size());
}

absl::StatusOr<Environment> ReceiveEnvironment(int fd) {
  uint32_t size = 0;
  if (!ReceiveAll(fd, reinterpret_cast<char*>(&size), sizeof(size))) {
    return absl::UnavailableError("the proxy has ended");
  }
  if (size > kMaxEnvironmentBytes) {
    return absl::InvalidArgumentError(absl::StrCat("an environment of ", size, " bytes; at most ",
                                                   kMaxEnvironmentBytes, " are allowed"));
  }
  std::string text(size, '\0');
  if (!ReceiveAll(fd, text.data(), text.size())) {
    return absl::UnavailableError("the proxy has ended");
  }
  return Environment(absl::StrSplit(text, '\0', absl::SkipEmpty()));
}

absl::Status SendWaitStatus(int fd, int status) {
  return SendAll(fd, reinterpret_cast<const char*>(&status), sizeof(status));
}

std::optional<int> ReceiveWaitStatus(int fd) {
  int status = 0;
  if (!ReceiveAll(fd, reinterpret_cast<char*>(&status), sizeof(status))) return std::nullopt;
  return status;
}

}  // namespace muster::mpi
