#include "worker/c10d_store/roster.h"

#include <charconv>
#include <utility>

namespace muster::c10d_store {
namespace {

constexpr std::string_view kDefaultGroup = "default_pg/0";

bool ConsumePrefix(std::string_view& text, std::string_view prefix) {
  if (text.substr(0, prefix.size()) != prefix) return false;
  text.remove_prefix(prefix.size());
  return true;
}

// "a, b and c".
std::string Join(const std::vector<std::string>& parts) {
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) text += i + 1 == parts.size() ? " and " : ", ";
    text += parts[i];
  }
  return text;
}

}  // namespace

std::optional<uint32_t> RankInKey(std::string_view key) {
  const size_t group = key.find(kDefaultGroup);
  if (group == std::string_view::npos) return std::nullopt;
  std::string_view rest = key.substr(group + kDefaultGroup.size());
  // Keys of other groups have further components.
  const bool of_group = ConsumePrefix(rest, "//cpu//0/") || ConsumePrefix(rest, "/0/");
  if (!of_group) return std::nullopt;
  ConsumePrefix(rest, "rank_");
  uint32_t rank = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), rank);
  if (error != std::errc() || end != rest.data() + rest.size()) return std::nullopt;
  return rank;
}

ConnectionId Roster::Add(std::string peer) {
  const auto connection = static_cast<ConnectionId>(ranks_.size());
  ranks_.emplace_back();
  peers_[connection] = std::move(peer);
  ++unknown_;
  return connection;
}

void Roster::Close(ConnectionId connection) {
  if (peers_.erase(connection) > 0 && !ranks_[connection].has_value()) --unknown_;
}

void Roster::SetRank(ConnectionId connection, uint32_t rank) {
  if (rank >= world_size_ || ranks_[connection] == rank) return;
  if (!ranks_[connection].has_value() && peers_.count(connection) > 0) --unknown_;
  ranks_[connection] = rank;
  connected_.insert(rank);
}

std::optional<uint32_t> Roster::RankOf(ConnectionId connection) const {
  return connection < ranks_.size() ? ranks_[connection] : std::nullopt;
}

std::string Roster::NameOf(ConnectionId connection) const {
  if (const auto rank = RankOf(connection)) return "rank " + std::to_string(*rank);
  const auto peer = peers_.find(connection);
  return peer == peers_.end() ? "a process that has disconnected"
                              : "the process at " + peer->second;
}

std::vector<ConnectionId> Roster::Unknown() const {
  std::vector<ConnectionId> unknown;
  for (const auto& [connection, peer] : peers_) {
    if (!ranks_[connection].has_value()) unknown.push_back(connection);
  }
  return unknown;
}

std::string RanksText(const std::set<uint32_t>& ranks, size_t most) {
  std::vector<std::string> parts;
  size_t named = 0;
  for (auto it = ranks.begin(); it != ranks.end() && parts.size() < most;) {
    const uint32_t first = *it;
    uint32_t last = first;
    for (++it; it != ranks.end() && *it == last + 1; ++it) ++last;
    if (last == first + 1) {
      parts.push_back(std::to_string(first));
      parts.push_back(std::to_string(last));
    } else {
      parts.push_back(std::to_string(first));
      if (last > first) parts.back() += "-" + std::to_string(last);
    }
    named += last - first + 1;
  }
  if (named < ranks.size()) parts.push_back(std::to_string(ranks.size() - named) + " more");
  return (ranks.size() == 1 ? "rank " : "ranks ") + Join(parts);
}

}  // namespace muster::c10d_store
