#include "worker/c10d_store/local_peers.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <unistd.h>

#include <charconv>
#include <cstring>
#include <optional>
#include <sstream>
#include <string_view>

#include "worker/shim/fields.h"

namespace muster::c10d_store {
namespace {

constexpr std::array<uint8_t, 12> kMapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
constexpr char kSocketLink[] = "socket:[";

Endpoint Mapped(uint32_t ipv4, uint16_t port) {
  Endpoint endpoint;
  std::memcpy(endpoint.address.data(), kMapped.data(), kMapped.size());
  std::memcpy(endpoint.address.data() + kMapped.size(), &ipv4, sizeof(ipv4));
  endpoint.port = port;
  return endpoint;
}

template <typename Number>
std::optional<Number> Parse(std::string_view text, int base) {
  Number number = 0;
  const char* const end = text.data() + text.size();
  const auto [parsed, error] = std::from_chars(text.data(), end, number, base);
  if (error != std::errc() || parsed != end) return std::nullopt;
  return number;
}

// ADDRESS:PORT in hexadecimal, as the kernel prints them: the address in words of 32 bits in the
// machine's byte order.
std::optional<Endpoint> ParseEndpoint(std::string_view text) {
  const size_t colon = text.find(':');
  if (colon != 8 && colon != 32) return std::nullopt;
  const std::optional<uint16_t> port = Parse<uint16_t>(text.substr(colon + 1), 16);
  if (!port.has_value()) return std::nullopt;
  std::array<uint32_t, 4> words = {};
  for (size_t i = 0; i < colon / 8; ++i) {
    const std::optional<uint32_t> word = Parse<uint32_t>(text.substr(8 * i, 8), 16);
    if (!word.has_value()) return std::nullopt;
    words[i] = *word;
  }
  if (colon == 8) return Mapped(words[0], *port);
  Endpoint endpoint;
  std::memcpy(endpoint.address.data(), words.data(), sizeof(words));
  endpoint.port = *port;
  return endpoint;
}

// Calls `visit` with the name of each entry that is a number.
template <typename Visit>
void ForEachNumber(const std::string& directory, const Visit& visit) {
  DIR* const entries = opendir(directory.c_str());
  if (entries == nullptr) return;
  while (const dirent* const entry = readdir(entries)) {
    if (entry->d_name[0] >= '0' && entry->d_name[0] <= '9') visit(std::string(entry->d_name));
  }
  closedir(entries);
}

// The rank of a process with all of the marks in its environment.
std::optional<uint32_t> RankOf(const std::string& process, const std::vector<std::string>& marks) {
  const std::optional<std::string> environment = shim::ReadFile(process + "/environ");
  if (!environment.has_value()) return std::nullopt;
  std::set<std::string_view> entries;
  std::string_view rest = *environment;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\0'), rest.size());
    entries.insert(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  for (const std::string& mark : marks) {
    if (entries.count(mark) == 0) return std::nullopt;
  }
  constexpr std::string_view kRank = "RANK=";
  const auto entry = entries.lower_bound(kRank);
  if (entry == entries.end() || entry->substr(0, kRank.size()) != kRank) return std::nullopt;
  return Parse<uint32_t>(entry->substr(kRank.size()), 10);
}

}  // namespace

Endpoint Endpoint::Of(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET) {
    const auto* const v4 = reinterpret_cast<const sockaddr_in*>(&address);
    return Mapped(v4->sin_addr.s_addr, ntohs(v4->sin_port));
  }
  Endpoint endpoint;
  if (address.ss_family != AF_INET6) return endpoint;
  const auto* const v6 = reinterpret_cast<const sockaddr_in6*>(&address);
  std::memcpy(endpoint.address.data(), &v6->sin6_addr, endpoint.address.size());
  endpoint.port = ntohs(v6->sin6_port);
  return endpoint;
}

std::string Endpoint::ToString() const {
  char text[INET6_ADDRSTRLEN] = {};
  const bool mapped = std::memcmp(address.data(), kMapped.data(), kMapped.size()) == 0;
  if (mapped) {
    inet_ntop(AF_INET, address.data() + kMapped.size(), text, sizeof(text));
    return std::string(text) + ":" + std::to_string(port);
  }
  inet_ntop(AF_INET6, address.data(), text, sizeof(text));
  return "[" + std::string(text) + "]:" + std::to_string(port);
}

std::map<uint64_t, Endpoint> FindInodes(const std::string& table, const std::set<Endpoint>& clients,
                                        uint16_t server_port) {
  std::map<uint64_t, Endpoint> inodes;
  std::istringstream lines(table);
  std::string line;
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    std::string slot, local, remote, state, queues, timer, retransmits, user, timeout, inode;
    words >> slot >> local >> remote >> state >> queues >> timer >> retransmits >> user >>
        timeout >> inode;
    const std::optional<Endpoint> client = ParseEndpoint(local);
    const std::optional<Endpoint> server = ParseEndpoint(remote);
    const std::optional<uint64_t> number = Parse<uint64_t>(inode, 10);
    if (!client.has_value() || !server.has_value() || !number.has_value()) continue;
    if (server->port == server_port && clients.count(*client) > 0) inodes[*number] = *client;
  }
  return inodes;
}

std::map<Endpoint, uint32_t> FindLocalRanks(const std::set<Endpoint>& clients, uint16_t server_port,
                                            const std::vector<std::string>& marks) {
  std::map<uint64_t, Endpoint> inodes;
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    inodes.merge(FindInodes(shim::ReadFile(table).value_or(""), clients, server_port));
  }
  std::map<Endpoint, uint32_t> ranks;
  if (inodes.empty()) return ranks;
  ForEachNumber("/proc", [&](const std::string& pid) {
    const std::string process = "/proc/" + pid;
    const std::optional<uint32_t> rank = RankOf(process, marks);
    if (!rank.has_value()) return;
    const std::string descriptors = process + "/fd";
    ForEachNumber(descriptors, [&](const std::string& fd) {
      char link[64];
      const ssize_t size = readlink((descriptors + "/" + fd).c_str(), link, sizeof(link));
      std::string_view target(link, size < 0 ? 0 : static_cast<size_t>(size));
      if (target.substr(0, std::strlen(kSocketLink)) != kSocketLink) return;
      target.remove_prefix(std::strlen(kSocketLink));
      const std::optional<uint64_t> inode = Parse<uint64_t>(target.substr(0, target.find(']')), 10);
      if (!inode.has_value()) return;
      const auto client = inodes.find(*inode);
      if (client != inodes.end()) ranks[client->second] = *rank;
    });
  });
  return ranks;
}

}  // namespace muster::c10d_store
