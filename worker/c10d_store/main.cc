// muster-c10d-store DIRECTORY ADDRESS PORT WORLD_SIZE serves PyTorch's TCPStore protocol to the
// ranks of a generation, and reports its state in DIRECTORY: see status_file.h. MUSTER_JOB_ID and
// MUSTER_GENERATION name the generation. Started by muster-worker only; ends with SIGTERM.
#include <sys/resource.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "common/http/address.h"
#include "worker/c10d_store/server.h"

namespace muster::c10d_store {
namespace {

template <typename Number>
bool Parse(const char* text, Number& number) {
  const char* const end = text + std::strlen(text);
  const auto [parsed, error] = std::from_chars(text, end, number);
  return error == std::errc() && parsed == end;
}

// PyTorch's own store listens on every address. This one does, too, so that any name of the machine
// works, except for a cluster on one machine.
absl::StatusOr<ListeningSockets> ListenFor(const std::string& address, uint16_t port) {
  if (IsLoopback(address)) return Listen({address, port});
  absl::StatusOr<ListeningSockets> both = Listen({"::", port});
  if (both.ok()) return both;
  return Listen({"0.0.0.0", port});  // a machine without IPv6
}

std::string Mark(const char* name) {
  const char* const value = std::getenv(name);
  return std::string(name) + "=" + (value == nullptr ? "" : value);
}

int Run(const std::string& directory, const std::string& address, uint16_t port,
        uint32_t world_size) {
  rlimit files = {};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
  }
  absl::StatusOr<ListeningSockets> sockets = ListenFor(address, port);
  if (!sockets.ok()) {
    std::fprintf(stderr, "muster-c10d-store: %s\n",
                 std::string(sockets.status().message()).c_str());
    return 1;
  }
  ServerOptions options;
  options.listeners = std::move(sockets->sockets);
  options.port = sockets->port;
  options.world_size = world_size;
  options.marks = {Mark("MUSTER_JOB_ID"), Mark("MUSTER_GENERATION")};
  options.status_path = directory + "/" + kStatusFile;
  Server server(std::move(options));
  if (!server.Start()) {
    std::fprintf(stderr, "muster-c10d-store: %s: %s\n", directory.c_str(), std::strerror(errno));
    return 1;
  }
  while (true) server.Poll(-1);
}

}  // namespace
}  // namespace muster::c10d_store

int main(int argc, char** argv) {
  uint16_t port = 0;
  uint32_t world_size = 0;
  if (argc != 5 || !muster::c10d_store::Parse(argv[3], port) ||
      !muster::c10d_store::Parse(argv[4], world_size) || world_size == 0) {
    std::fprintf(stderr, "usage: muster-c10d-store DIRECTORY ADDRESS PORT WORLD_SIZE\n");
    return 2;
  }
  return muster::c10d_store::Run(argv[1], argv[2], port, world_size);
}
