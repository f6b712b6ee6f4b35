#include "common/network/network.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/http/address.h"

namespace muster {
namespace {

// An IPv4 or IPv6 address as 4 or 16 bytes; empty for other families.
std::string BytesOf(const sockaddr* address) {
  if (address == nullptr) return "";
  if (address->sa_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(address);
    return std::string(reinterpret_cast<const char*>(&v4->sin_addr), sizeof(v4->sin_addr));
  }
  if (address->sa_family == AF_INET6) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(address);
    return std::string(reinterpret_cast<const char*>(&v6->sin6_addr), sizeof(v6->sin6_addr));
  }
  return "";
}

std::vector<std::string> Resolve(const std::string& host) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) return {};
  std::vector<std::string> addresses;
  for (const addrinfo* info = found; info != nullptr; info = info->ai_next) {
    addresses.push_back(BytesOf(info->ai_addr));
  }
  freeaddrinfo(found);
  return addresses;
}

}  // namespace

std::string InterfaceOf(const std::string& address) {
  const bool loopback = IsLoopback(address);
  const std::vector<std::string> wanted = loopback ? std::vector<std::string>() : Resolve(address);
  ifaddrs* interfaces = nullptr;
  if (getifaddrs(&interfaces) != 0) return "";
  std::string name;
  for (const ifaddrs* entry = interfaces; entry != nullptr && name.empty();
       entry = entry->ifa_next) {
    const std::string bytes = BytesOf(entry->ifa_addr);
    bool carries = loopback && !bytes.empty() && (entry->ifa_flags & IFF_LOOPBACK) != 0;
    for (const std::string& one : wanted) carries = carries || (!one.empty() && one == bytes);
    if (carries) name = entry->ifa_name;
  }
  freeifaddrs(interfaces);
  return name;
}

std::string NetworkIdentity() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id") >> std::ws, boot);
  std::error_code error;
  const std::filesystem::path space = std::filesystem::read_symlink("/proc/self/ns/net", error);
  if (boot.empty() || error) return "";
  return absl::StrCat(boot, "/", space.string());
}

}  // namespace muster
