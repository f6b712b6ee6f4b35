// Finds the ranks behind TCP connections from this machine.
#ifndef MUSTER_WORKER_C10D_STORE_LOCAL_PEERS_H_
#define MUSTER_WORKER_C10D_STORE_LOCAL_PEERS_H_

#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

namespace muster::c10d_store {

// One end of a TCP connection; IPv4 addresses are mapped to IPv6.
struct Endpoint {
  std::array<uint8_t, 16> address = {};
  uint16_t port = 0;

  // Returns an empty endpoint for other families.
  static Endpoint Of(const sockaddr_storage& address);
  // "10.0.0.2:4711".
  std::string ToString() const;

  friend bool operator<(const Endpoint& a, const Endpoint& b) {
    return std::tie(a.address, a.port) < std::tie(b.address, b.port);
  }
  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

// The ranks whose processes hold the `clients` ends of connections to `server_port`. Reads /proc:
// a process belongs to the rank RANK of its environment, if this also has all of `marks`
// (NAME=value). Omits clients on other machines, in other network namespaces, and of other users.
std::map<Endpoint, uint32_t> FindLocalRanks(const std::set<Endpoint>& clients, uint16_t server_port,
                                            const std::vector<std::string>& marks);

// Parses the lines of /proc/net/tcp and tcp6: the inodes of the sockets of these clients.
std::map<uint64_t, Endpoint> FindInodes(const std::string& table, const std::set<Endpoint>& clients,
                                        uint16_t server_port);

}  // namespace muster::c10d_store

#endif  // MUSTER_WORKER_C10D_STORE_LOCAL_PEERS_H_
