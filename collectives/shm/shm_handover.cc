#include "collectives/shm/shm_handover.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "collectives/peer_status.h"
#include "common/status.h"
#include "common/time/deadline.h"

namespace muster::collectives {
namespace {

// Limits how long a client that connects and sends nothing can delay the others.
constexpr absl::Duration kRequestTimeout = absl::Seconds(1);

struct Address {
  sockaddr_un name = {};
  socklen_t length = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&name); }
};

absl::StatusOr<Address> AbstractAddress(const GroupOptions& options) {
  const std::string name = absl::StrCat("muster/shm/", options.name, "/", options.id);
  Address address;
  if (name.size() + 1 > sizeof(address.name.sun_path)) {
    return absl::InvalidArgumentError(
        absl::StrCat("group id is too long for a socket name: ", options.id));
  }
  address.name.sun_family = AF_UNIX;
  std::memcpy(address.name.sun_path + 1, name.data(), name.size());
  address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

std::string ReadyKey(const GroupOptions& options) {
  return absl::StrCat("shm/", options.name, "/", options.id);
}

bool SameUser(int socket) {
  ucred peer = {};
  socklen_t length = sizeof(peer);
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == geteuid();
}

void SetTimeout(int socket, absl::Duration timeout) {
  const timeval value = absl::ToTimeval(std::max(timeout, absl::Milliseconds(1)));
  setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &value, sizeof(value));
  setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &value, sizeof(value));
}

union FdMessage {
  cmsghdr header;
  char bytes[CMSG_SPACE(sizeof(int))];
};

bool SendFd(int socket, int fd) {
  char byte = 0;
  iovec data = {&byte, 1};
  FdMessage control = {};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = &control;
  message.msg_controllen = sizeof(control);
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &fd, sizeof(fd));
  return sendmsg(socket, &message, MSG_NOSIGNAL) == 1;
}

OwnedFd ReceiveFd(int socket) {
  char byte = 0;
  iovec data = {&byte, 1};
  FdMessage control = {};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = &control;
  message.msg_controllen = sizeof(control);
  if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != 1) return OwnedFd();
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS ||
      header->cmsg_len != CMSG_LEN(sizeof(int))) {
    return OwnedFd();
  }
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(header), sizeof(fd));
  return OwnedFd(fd);
}

// Sends the segment to each client of the socket until every rank has it.
absl::Status Serve(const GroupOptions& options, int listener, int segment_fd) {
  const Deadline deadline(options.connect_timeout);
  std::vector<bool> served(options.size, false);
  served[0] = true;
  for (;;) {
    std::vector<uint32_t> missing;
    for (uint32_t i = 0; i < options.size; ++i) {
      if (!served[i]) missing.push_back(options.members[i]);
    }
    if (missing.empty()) return absl::OkStatus();
    pollfd poller = {listener, POLLIN, 0};
    const int64_t left = absl::ToInt64Milliseconds(deadline.left());
    if (left <= 0) return PeersMissing(options.name, missing, options.connect_timeout);
    if (poll(&poller, 1, static_cast<int>(std::min<int64_t>(left, 1000))) <= 0) continue;
    const OwnedFd client(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
    if (client.get() < 0 || !SameUser(client.get())) continue;
    SetTimeout(client.get(), kRequestTimeout);
    uint32_t rank = 0;
    if (recv(client.get(), &rank, sizeof(rank), 0) != sizeof(rank)) continue;
    if (rank < options.size && SendFd(client.get(), segment_fd)) served[rank] = true;
  }
}

absl::StatusOr<std::unique_ptr<ShmSegment>> CreateAndServe(const GroupOptions& options) {
  ASSIGN_OR_RETURN(std::unique_ptr<ShmSegment> segment, ShmSegment::Create(options.size));
  ASSIGN_OR_RETURN(const Address address, AbstractAddress(options));
  const OwnedFd listener(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (listener.get() < 0) return ErrnoStatus(errno, "socket");
  if (bind(listener.get(), address.get(), address.length) != 0 ||
      listen(listener.get(), static_cast<int>(options.size)) != 0) {
    return ErrnoStatus(errno, "listening for the group's ranks");
  }
  RETURN_IF_ERROR(options.store->Put(ReadyKey(options), "ready"));
  RETURN_IF_ERROR(Serve(options, listener.get(), segment->fd()));
  return {std::move(segment)};
}

absl::StatusOr<std::unique_ptr<ShmSegment>> Fetch(const GroupOptions& options) {
  const Deadline deadline(options.connect_timeout);
  const absl::StatusOr<std::string> ready =
      options.store->Get(ReadyKey(options), options.connect_timeout);
  if (absl::IsDeadlineExceeded(ready.status())) {
    return PeersMissing(options.name, {options.members[0]}, options.connect_timeout);
  }
  RETURN_IF_ERROR(ready.status());
  ASSIGN_OR_RETURN(const Address address, AbstractAddress(options));
  const OwnedFd server(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (server.get() < 0) return ErrnoStatus(errno, "socket");
  SetTimeout(server.get(), deadline.left());
  if (connect(server.get(), address.get(), address.length) != 0) {
    return PeerLost(options.members[0], "no longer listens for the ranks of its node");
  }
  if (!SameUser(server.get())) {
    return absl::PermissionDeniedError("the group's socket belongs to another user");
  }
  if (send(server.get(), &options.rank, sizeof(options.rank), MSG_NOSIGNAL) !=
      sizeof(options.rank)) {
    return PeerLost(options.members[0], "closed the connection during group setup");
  }
  OwnedFd fd = ReceiveFd(server.get());
  if (fd.get() < 0) {
    return PeerLost(options.members[0], "did not send the group's shared memory");
  }
  return ShmSegment::Attach(std::move(fd), options.size);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ShmSegment>> ShareSegment(const GroupOptions& options) {
  return options.rank == 0 ? CreateAndServe(options) : Fetch(options);
}

}  // namespace muster::collectives
