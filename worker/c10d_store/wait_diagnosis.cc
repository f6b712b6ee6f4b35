#include "worker/c10d_store/wait_diagnosis.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

namespace muster::c10d_store {
namespace {

// A client that has not read its counter for this long no longer waits for it.
constexpr int64_t kPollPauseMs = 1000;
constexpr size_t kShownKeyBytes = 120;
// In PyTorch 2, the last rank to arrive at the barrier K sets the key K with this suffix.
constexpr std::string_view kLastWorker = ":last_worker";

// The clients that wait for one thing.
struct Waiters {
  std::set<ConnectionId> clients;
  int64_t since_ms = INT64_MAX;
  size_t other_keys = 0;  // that the same rank must set

  void Add(ConnectionId client, int64_t since) {
    clients.insert(client);
    since_ms = std::min(since_ms, since);
  }
};

// The key in quotes, as the program knows it: PyTorch's client adds a slash in front. Printable
// ASCII only.
std::string Quoted(std::string_view key) {
  if (!key.empty() && key[0] == '/') key.remove_prefix(1);
  std::string text = "\"";
  for (const char c : key.substr(0, kShownKeyBytes)) text += c >= ' ' && c <= '~' ? c : '?';
  return text + (key.size() > kShownKeyBytes ? "...\"" : "\"");
}

// Whether the key is the one that the last rank at a barrier sets.
bool IsBarrierEnd(const Store& store, std::string_view key) {
  if (key.size() < kLastWorker.size()) return false;
  const size_t suffix = key.size() - kLastWorker.size();
  return key.substr(suffix) == kLastWorker && store.keys().Find(key.substr(0, suffix)) != nullptr;
}

class Diagnosis {
 public:
  // `waiting`: all clients that wait, for however long.
  Diagnosis(const Store& store, const Roster& roster, std::set<ConnectionId> waiting)
      : store_(store), roster_(roster), waiting_(std::move(waiting)) {}

  WaitReport OfKey(const std::string& key, const Waiters& waiters) const;
  // Merges the waits for keys that the same rank must set; the oldest one represents them.
  std::map<std::string, Waiters> Merge(std::map<std::string, Waiters> keys) const;
  // `expected`: number of arrivals that complete the barrier.
  WaitReport OfBarrier(const std::string& key, const Waiters& waiters, int64_t expected) const;

 private:
  // "rank 3 and the process at 10.0.0.2:4711".
  std::string NamesOf(const std::set<ConnectionId>& clients) const;
  // The known ranks of the clients.
  std::set<uint32_t> RanksOf(const std::set<ConnectionId>& clients) const;
  bool AllKnown(const std::set<ConnectionId>& clients) const;
  std::set<uint32_t> AllExcept(const std::set<uint32_t>& ranks) const;
  // The rank that sets the key, which ends with its number, and the ranks that have set the keys
  // with other numbers. Nothing if it cannot be derived.
  struct Series {
    uint32_t rank = 0;
    std::set<uint32_t> done;
  };
  std::optional<Series> SeriesOf(const std::string& key) const;

  const Store& store_;
  const Roster& roster_;
  const std::set<ConnectionId> waiting_;
};

std::set<uint32_t> Diagnosis::RanksOf(const std::set<ConnectionId>& clients) const {
  std::set<uint32_t> ranks;
  for (const ConnectionId client : clients) {
    if (const auto rank = roster_.RankOf(client)) ranks.insert(*rank);
  }
  return ranks;
}

bool Diagnosis::AllKnown(const std::set<ConnectionId>& clients) const {
  return std::all_of(clients.begin(), clients.end(),
                     [this](ConnectionId client) { return roster_.RankOf(client).has_value(); });
}

std::string Diagnosis::NamesOf(const std::set<ConnectionId>& clients) const {
  const std::set<uint32_t> ranks = RanksOf(clients);
  std::string text = ranks.empty() ? "" : RanksText(ranks);
  size_t unknown = 0;
  std::string name;
  for (const ConnectionId client : clients) {
    if (roster_.RankOf(client).has_value()) continue;
    if (++unknown == 1) name = roster_.NameOf(client);
  }
  if (unknown == 0) return text;
  if (unknown > 1) name = std::to_string(unknown) + " processes of unknown rank";
  return text.empty() ? name : text + " and " + name;
}

std::set<uint32_t> Diagnosis::AllExcept(const std::set<uint32_t>& ranks) const {
  std::set<uint32_t> rest;
  for (uint32_t rank = 0; rank < roster_.world_size(); ++rank) {
    if (ranks.count(rank) == 0) rest.insert(rest.end(), rank);
  }
  return rest;
}

std::optional<Diagnosis::Series> Diagnosis::SeriesOf(const std::string& key) const {
  size_t digits = key.size();
  while (digits > 0 && std::isdigit(static_cast<unsigned char>(key[digits - 1])) != 0) --digits;
  const std::string prefix = key.substr(0, digits);
  const auto number_of = [&](std::string_view other) -> std::optional<uint32_t> {
    uint32_t number = 0;
    const char* const end = other.data() + other.size();
    const auto [parsed, error] = std::from_chars(other.data() + digits, end, number);
    if (error != std::errc() || parsed != end || number >= roster_.world_size())
      return std::nullopt;
    return number;
  };
  const std::optional<uint32_t> rank = number_of(key);
  if (!rank.has_value()) return std::nullopt;
  Series series{*rank, {}};
  const KeyStore::Entries& entries = store_.keys().entries();
  for (auto it = entries.lower_bound(prefix); it != entries.end(); ++it) {
    const auto& [other, entry] = *it;
    if (other.compare(0, digits, prefix) != 0) break;
    const std::optional<uint32_t> number = number_of(other);
    if (!number.has_value()) continue;
    // Another rank set it: the numbers are not those of ranks.
    if (RanksOf(entry.writers) != std::set<uint32_t>{*number}) return std::nullopt;
    series.done.insert(*number);
  }
  if (series.done.empty() && RankInKey(key) != rank) return std::nullopt;
  return series;
}

std::map<std::string, Waiters> Diagnosis::Merge(std::map<std::string, Waiters> keys) const {
  std::map<uint32_t, std::string> oldest;  // key by the rank that must set it
  for (const auto& [key, waiters] : keys) {
    const std::optional<Series> series = SeriesOf(key);
    if (!series.has_value()) continue;
    const auto [it, is_new] = oldest.emplace(series->rank, key);
    if (!is_new && waiters.since_ms < keys.at(it->second).since_ms) it->second = key;
  }
  for (auto it = keys.begin(); it != keys.end();) {
    const std::optional<Series> series = SeriesOf(it->first);
    if (!series.has_value() || oldest.at(series->rank) == it->first) {
      ++it;
      continue;
    }
    Waiters& merged = keys.at(oldest.at(series->rank));
    merged.clients.insert(it->second.clients.begin(), it->second.clients.end());
    ++merged.other_keys;
    it = keys.erase(it);
  }
  return keys;
}

WaitReport Diagnosis::OfBarrier(const std::string& key, const Waiters& waiters,
                                int64_t expected) const {
  WaitReport report;
  report.since_boot_ms = waiters.since_ms;
  const KeyStore::Entry* const entry = store_.keys().Find(key);
  const std::set<ConnectionId> arrived = entry == nullptr ? waiters.clients : entry->writers;
  report.what = "c10d barrier " + Quoted(key) + " (" + std::to_string(arrived.size()) + " of " +
                std::to_string(expected) + " have arrived: " + NamesOf(arrived) + ")";
  const std::set<uint32_t> missing = AllExcept(RanksOf(arrived));
  if (expected == roster_.world_size() && AllKnown(arrived)) {
    report.missing.assign(missing.begin(), missing.end());
  }
  if (report.missing.empty()) report.reason = "the others to arrive";
  return report;
}

WaitReport Diagnosis::OfKey(const std::string& key, const Waiters& waiters) const {
  WaitReport report;
  report.since_boot_ms = waiters.since_ms;
  const auto finish = [&](const std::string& evidence, const std::set<uint32_t>& missing) {
    report.what = "c10d key " + Quoted(key);
    if (waiters.other_keys > 0) {
      report.what += " and " + std::to_string(waiters.other_keys) + " more";
    }
    report.what += " (awaited by " + NamesOf(waiters.clients) +
                   (evidence.empty() ? ")" : "; " + evidence + ")");
    report.missing.assign(missing.begin(), missing.end());
    return report;
  };
  if (const std::optional<Series> series = SeriesOf(key)) {
    std::string evidence;
    if (!series->done.empty()) {
      evidence = RanksText(series->done) + (series->done.size() == 1 ? " has" : " have") +
                 " set theirs, rank " + std::to_string(series->rank) + " has not";
    }
    return finish(evidence, {series->rank});
  }
  // The missing ranks can only be derived if all clients are known.
  if (!roster_.HasUnknown()) {
    const std::set<uint32_t> absent = AllExcept(roster_.connected());
    if (!absent.empty()) {
      return finish(RanksText(absent) + (absent.size() == 1 ? " has" : " have") +
                        " not connected to the store",
                    absent);
    }
    const std::set<uint32_t> free = AllExcept(RanksOf(waiting_));
    if (!free.empty() && free.size() < roster_.world_size()) {
      return finish(
          RanksText(free) + (free.size() == 1 ? " does" : " do") + " not wait in the store", free);
    }
    report.reason = "any rank to set it; all ranks wait in the store";
  } else {
    report.reason = "any rank to set it";
  }
  return finish("", {});
}

}  // namespace

std::vector<WaitReport> DiagnoseWaits(const Store& store, const Roster& roster, int64_t now_ms) {
  std::map<std::string, Waiters> keys;
  std::map<std::string, Waiters> counters;
  std::map<std::string, int64_t> expected;
  std::set<ConnectionId> waiting;
  for (const auto& [client, wait] : store.waits()) {
    const auto* const poll = std::get_if<CounterPoll>(&wait);
    if (poll != nullptr && now_ms - poll->latest_ms > kPollPauseMs) continue;
    waiting.insert(client);
    const int64_t since_ms = std::visit([](const auto& any) { return any.since_ms; }, wait);
    if (now_ms - since_ms < kReportedWaitMs) continue;
    if (const auto* const for_keys = std::get_if<KeyWait>(&wait)) {
      // The first missing key represents them all.
      std::string key = *for_keys->missing.begin();
      const bool at_barrier = IsBarrierEnd(store, key);
      if (at_barrier) key.resize(key.size() - kLastWorker.size());
      (at_barrier ? counters : keys)[key].Add(client, since_ms);
    } else if (const auto* const barrier = std::get_if<BarrierWait>(&wait)) {
      counters[barrier->key].Add(client, since_ms);
      expected[barrier->key] = barrier->world_size;
    } else {
      counters[poll->key].Add(client, since_ms);
    }
  }
  const Diagnosis diagnosis(store, roster, std::move(waiting));
  std::vector<WaitReport> reports;
  for (const auto& [key, waiters] : diagnosis.Merge(std::move(keys))) {
    reports.push_back(diagnosis.OfKey(key, waiters));
  }
  for (const auto& [key, waiters] : counters) {
    const auto size = expected.find(key);
    reports.push_back(diagnosis.OfBarrier(
        key, waiters, size == expected.end() ? roster.world_size() : size->second));
  }
  std::stable_sort(reports.begin(), reports.end(), [](const WaitReport& a, const WaitReport& b) {
    return a.since_boot_ms < b.since_boot_ms;
  });
  if (reports.size() > kMaxReportedWaits) reports.resize(kMaxReportedWaits);
  return reports;
}

}  // namespace muster::c10d_store
