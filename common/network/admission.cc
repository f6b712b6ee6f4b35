#include "common/network/admission.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <glog/logging.h>
#include <linux/tcp.h>
#include <malloc.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace muster {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(10);
constexpr absl::Duration kRefusal = absl::Seconds(10);
constexpr absl::Duration kSilence = absl::Hours(1);
constexpr absl::Duration kTrimDelay = absl::Seconds(3);
constexpr absl::Duration kSweepInterval = absl::Seconds(1);
constexpr double kTimeoutPoints = 32;
constexpr double kBytesPerPoint = 1 << 10;
constexpr absl::Duration kMaxWait = absl::Seconds(20);  // as long as clients of gRPC wait
// Limit of the bytes that a stranger may send before the server reads them, so that an address
// cannot exceed its budget many times between two updates.
constexpr int kStrangerWindowBytes = 8 << 10;
constexpr int kWindowBytes = 1 << 30;  // the kernel uses what its limits allow

// States of include/net/tcp_states.h in which a server has not closed its side. The names in libc's
// header conflict with linux/tcp.h, whose tcp_info libc's lacks fields of.
constexpr uint8_t kEstablished = 1;
constexpr uint8_t kCloseWait = 8;

// HOST:PORT of a peer, however gRPC writes it: with escapes, brackets, a zone, or as an IPv4
// address within IPv6.
std::string CanonicalPeer(absl::string_view peer) {
  std::string text = absl::StrReplaceAll(
      peer,
      {{"ipv4:", ""}, {"ipv6:", ""}, {"%5B", ""}, {"%5D", ""}, {"[", ""}, {"]", ""}, {"%25", "%"}});
  const size_t zone = text.find('%');
  if (zone != std::string::npos) text.erase(zone, text.rfind(':') - zone);
  if (absl::StartsWith(text, "::ffff:") && absl::StrContains(text, '.')) text.erase(0, 7);
  return text;
}

// The IP address of a canonical peer, or its /64 in IPv6.
std::string AddressOf(const std::string& peer) {
  const std::string host = peer.substr(0, peer.rfind(':'));
  in6_addr v6 = {};
  if (inet_pton(AF_INET6, host.c_str(), &v6) != 1) return host;
  std::memset(&v6.s6_addr[8], 0, 8);
  std::array<char, INET6_ADDRSTRLEN> text = {};
  inet_ntop(AF_INET6, &v6, text.data(), text.size());
  return absl::StrCat(text.data(), "/64");
}

// The canonical peer; empty for anything but TCP.
std::string PeerOf(int connection) {
  sockaddr_storage storage = {};
  socklen_t size = sizeof(storage);
  if (getpeername(connection, reinterpret_cast<sockaddr*>(&storage), &size) != 0) return "";
  std::array<char, INET6_ADDRSTRLEN> text = {};
  if (storage.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(storage);
    inet_ntop(AF_INET, &v4.sin_addr, text.data(), text.size());
    return absl::StrCat(text.data(), ":", ntohs(v4.sin_port));
  }
  if (storage.ss_family != AF_INET6) return "";
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(storage);
  inet_ntop(AF_INET6, &v6.sin6_addr, text.data(), text.size());
  return CanonicalPeer(absl::StrCat(text.data(), ":", ntohs(v6.sin6_port)));
}

// Resets the connection, for all of its descriptors, and discards the received bytes that nobody
// has read yet.
void Disconnect(int connection) {
  sockaddr unspecified = {};
  unspecified.sa_family = AF_UNSPEC;
  connect(connection, &unspecified, sizeof(unspecified));
}

void DisconnectAndClose(int connection) {
  Disconnect(connection);
  close(connection);
}

// How many this process may have open.
size_t Descriptors() {
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur;
}

}  // namespace

Admission::Admission(std::function<void(int socket, int connection)> admit,
                     std::function<SteadyTime()> clock)
    : admit_(std::move(admit)),
      clock_(std::move(clock)),
      max_strangers_(std::min(kStrangers, Descriptors() / 8)),
      max_waiting_(std::min(kWaiting, Descriptors() / 4)) {}

Admission::~Admission() {
  absl::MutexLock lock(&mutex_);
  for (auto& [peer, stranger] : by_peer_) close(stranger.fd);
  for (auto& [key, account] : accounts_) {
    for (const Waiting& waiting : account.waiting) close(waiting.connection);
  }
}

bool Admission::HasRoom(const Account& account) const {
  return account.strangers < kStrangersPerAddress && by_peer_.size() < max_strangers_;
}

std::string Admission::KeyOf(const std::string& address, SteadyTime now) {
  if (accounts_.size() < kAddresses || accounts_.contains(address)) return address;
  if (now >= next_sweep_) {
    next_sweep_ = now + kSweepInterval;
    absl::erase_if(accounts_, [&](const auto& entry) {
      const Account& account = entry.second;
      const double refilled = absl::ToDoubleSeconds(now - account.at) * kRefillPerSecond;
      return account.strangers == 0 && account.waiting.empty() && now >= account.refused_until &&
             account.points <= refilled;
    });
  }
  return accounts_.size() < kAddresses ? address : "other addresses";
}

void Admission::OnConnection(int socket, int connection) {
  const std::string peer = PeerOf(connection);
  if (peer.empty()) return admit_(socket, connection);
  {
    absl::MutexLock lock(&mutex_);
    const SteadyTime now = clock_();
    const std::string key = KeyOf(AddressOf(peer), now);
    Account& account = accounts_[key];
    if (now < account.refused_until) return DisconnectAndClose(connection);
    const bool waits = !account.waiting.empty() || !HasRoom(account);
    if (waits && waiting_ >= max_waiting_) return DisconnectAndClose(connection);
    if (waits) {
      ++waiting_;
      return account.waiting.push_back({socket, connection, now});
    }
    if (!Admit(key, connection, now)) return;
  }
  admit_(socket, connection);
}

bool Admission::Admit(const std::string& key, int connection, SteadyTime now) {
  const std::string peer = PeerOf(connection);
  const int fd = peer.empty() ? -1 : fcntl(connection, F_DUPFD_CLOEXEC, 0);
  if (fd < 0) {
    DisconnectAndClose(connection);
    return false;
  }
  // An earlier connection with the same port has ended.
  const auto earlier = by_peer_.find(peer);
  if (earlier != by_peer_.end()) Forget(earlier);
  setsockopt(fd, IPPROTO_TCP, TCP_WINDOW_CLAMP, &kStrangerWindowBytes,
             sizeof(kStrangerWindowBytes));
  by_peer_[peer] = {.address = key, .fd = fd, .since = now};
  ++accounts_[key].strangers;
  strangers_ = by_peer_.size();
  Charge(key, 1, now);
  if (by_peer_.contains(peer)) return true;
  close(connection);
  return false;
}

void Admission::Charge(const std::string& key, double points, SteadyTime now) {
  Account& account = accounts_[key];
  const double refilled = absl::ToDoubleSeconds(now - account.at) * kRefillPerSecond;
  account.points = std::max(0.0, account.points - refilled) + points;
  account.at = now;
  if (account.points > kBudget) Refuse(key, now);
}

void Admission::Refuse(const std::string& key, SteadyTime now) {
  Account& account = accounts_[key];
  account.points = 0;
  account.refused_until = now + kRefusal;
  trim_at_ = std::min(trim_at_, now + kTrimDelay);
  waiting_ -= account.waiting.size();
  for (const Waiting& waiting : std::exchange(account.waiting, {})) {
    DisconnectAndClose(waiting.connection);
  }
  for (auto it = by_peer_.begin(); it != by_peer_.end();) {
    const auto stranger = it++;
    if (stranger->second.address != key) continue;
    Disconnect(stranger->second.fd);
    Forget(stranger);
  }
  if (now < account.silent_until) return;
  account.silent_until = now + kSilence;
  LOG(WARNING) << "connections without credentials from " << key
               << " exceed their budget; closing them and refusing new ones for "
               << absl::FormatDuration(kRefusal) << ", also the next times, without a log line";
}

void Admission::Forget(Strangers::iterator stranger) {
  --accounts_[stranger->second.address].strangers;
  close(stranger->second.fd);
  by_peer_.erase(stranger);
  strangers_ = by_peer_.size();
}

void Admission::CheckStranger(const std::string& peer, SteadyTime now) {
  const auto it = by_peer_.find(peer);
  if (it == by_peer_.end()) return;
  Stranger& stranger = it->second;
  tcp_info info = {};
  socklen_t size = sizeof(info);
  const bool open = getsockopt(stranger.fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 &&
                    (info.tcpi_state == kEstablished || info.tcpi_state == kCloseWait);
  double points = 0;
  if (info.tcpi_bytes_received > stranger.charged_bytes) {
    points +=
        static_cast<double>(info.tcpi_bytes_received - stranger.charged_bytes) / kBytesPerPoint;
    stranger.charged_bytes = info.tcpi_bytes_received;
  }
  const std::string key = stranger.address;
  const bool expired = open && now - stranger.since > kPatience;
  if (expired) points += kTimeoutPoints;
  stranger.points += points;
  if (expired) Disconnect(stranger.fd);
  if (expired || !open) Forget(it);
  if (points > 0) Charge(key, points, now);
}

bool Admission::Update() {
  std::vector<Waiting> admitted;
  bool pending = false;
  bool trim = false;
  {
    absl::MutexLock lock(&mutex_);
    const SteadyTime now = clock_();
    std::vector<std::string> peers;
    peers.reserve(by_peer_.size());
    for (const auto& [peer, stranger] : by_peer_) peers.push_back(peer);
    for (const std::string& peer : peers) CheckStranger(peer, now);
    for (auto& [key, account] : accounts_) {
      while (!account.waiting.empty() && HasRoom(account)) {
        const Waiting next = account.waiting.front();
        account.waiting.pop_front();
        --waiting_;
        if (now - next.since > kMaxWait) {
          DisconnectAndClose(next.connection);
        } else if (Admit(key, next.connection, now)) {
          admitted.push_back(next);
        }
      }
    }
    trim = now >= trim_at_;
    if (trim) trim_at_ = SteadyTime::Infinite();
    pending = waiting_ > 0 || !by_peer_.empty() || trim_at_ < SteadyTime::Infinite();
  }
  for (const Waiting& next : admitted) admit_(next.socket, next.connection);
  if (trim) malloc_trim(0);  // the allocator would keep what the calls of an attack used
  return pending;
}

void Admission::OnCall(absl::string_view peer) {
  if (!HasStrangers()) return;
  absl::MutexLock lock(&mutex_);
  const auto it = by_peer_.find(CanonicalPeer(peer));
  if (it == by_peer_.end()) return;
  ++it->second.points;
  Charge(std::string(it->second.address), 1, clock_());
}

void Admission::OnAuthenticated(absl::string_view peer) {
  if (!HasStrangers()) return;
  absl::MutexLock lock(&mutex_);
  const auto it = by_peer_.find(CanonicalPeer(peer));
  if (it == by_peer_.end()) return;
  Account& account = accounts_[it->second.address];
  account.points = std::max(0.0, account.points - it->second.points);
  setsockopt(it->second.fd, IPPROTO_TCP, TCP_WINDOW_CLAMP, &kWindowBytes, sizeof(kWindowBytes));
  Forget(it);
}

bool Admission::WasLogged(absl::string_view peer) {
  absl::MutexLock lock(&mutex_);
  const auto account = accounts_.find(AddressOf(CanonicalPeer(peer)));
  return account != accounts_.end() && clock_() < account->second.silent_until;
}

}  // namespace muster
