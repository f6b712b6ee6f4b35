#include "process_group/environment.h"

#include <errno.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/status.h"

namespace muster {
namespace {

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

absl::StatusOr<uint32_t> Number(const char* name, uint32_t least, uint32_t most) {
  const std::string text = Variable(name);
  uint32_t number = 0;
  if (text.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(name,
                     " is not set: start the program as a job's command, or set RANK, "
                     "WORLD_SIZE, MASTER_ADDR and MASTER_PORT"));
  }
  if (!absl::SimpleAtoi(text, &number) || number < least || number > most) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " is '", text, "'; must be a number from ", least, " to ", most));
  }
  return number;
}

}  // namespace

absl::StatusOr<ProcessGroupOptions> FromEnvironment(ProcessGroupOptions options) {
  ASSIGN_OR_RETURN(options.world_size, Number("WORLD_SIZE", 1, UINT32_MAX));
  ASSIGN_OR_RETURN(options.rank, Number("RANK", 0, options.world_size - 1));
  const std::string host = Variable("MASTER_ADDR");
  if (host.empty()) {
    return absl::InvalidArgumentError(
        "MASTER_ADDR is not set: set it to rank 0's host name or address");
  }
  ASSIGN_OR_RETURN(const uint32_t port, Number("MASTER_PORT", 1, UINT16_MAX));
  options.address = absl::StrCat("tcp://", Address{host, static_cast<uint16_t>(port)}.ToString());
  if (!options.run.empty()) return options;
  if (const std::string job = Variable("MUSTER_JOB_ID"); !job.empty()) {
    options.run = absl::StrCat(job, "/", Variable("MUSTER_GENERATION"));
  } else {
    options.run =
        absl::StrCat(Variable("TORCHELASTIC_RUN_ID"), "/", Variable("TORCHELASTIC_RESTART_COUNT"));
  }
  return options;
}

absl::StatusOr<Address> ParseTcpAddress(absl::string_view text) {
  absl::string_view rest = text;
  if (!absl::ConsumePrefix(&rest, "tcp://")) {
    return absl::InvalidArgumentError(
        absl::StrCat("invalid process group address '", text, "'; must be tcp://HOST:PORT"));
  }
  ASSIGN_OR_RETURN(Address address, ParseAddress(rest));
  if (address.port == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("process group address '", text, "' has no port; must be tcp://HOST:PORT"));
  }
  return address;
}

absl::StatusOr<std::string> OwnAddressTowards(const Address& address) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  const int error =
      getaddrinfo(address.host.c_str(), absl::StrCat(address.port).c_str(), &hints, &found);
  if (error != 0) {
    return absl::UnavailableError(absl::StrCat(address.host, ": ", gai_strerror(error)));
  }
  absl::StatusOr<std::string> own =
      absl::UnavailableError(absl::StrCat("no route to ", address.ToString()));
  for (const addrinfo* info = found; info != nullptr && !own.ok(); info = info->ai_next) {
    const int fd = socket(info->ai_family, info->ai_socktype | SOCK_CLOEXEC, info->ai_protocol);
    sockaddr_storage name = {};
    socklen_t size = sizeof(name);
    char text[NI_MAXHOST];
    if (fd >= 0 && connect(fd, info->ai_addr, info->ai_addrlen) == 0 &&
        getsockname(fd, reinterpret_cast<sockaddr*>(&name), &size) == 0 &&
        getnameinfo(reinterpret_cast<sockaddr*>(&name), size, text, sizeof(text), nullptr, 0,
                    NI_NUMERICHOST) == 0) {
      own = std::string(text);
    }
    if (fd >= 0) close(fd);
  }
  freeaddrinfo(found);
  return own;
}

}  // namespace muster
