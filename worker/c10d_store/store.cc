#include "worker/c10d_store/store.h"

#include <algorithm>
#include <utility>

namespace muster::c10d_store {
namespace {

constexpr char kReady = 0;
constexpr char kNotReady = 1;
constexpr char kWaitEnded = 0;
constexpr char kWaitCancelled = 1;
// A wait that is repeated within this time continues the one that timed out.
constexpr int64_t kRepeatMs = 2000;

template <typename Number>
std::string NumberBytes(Number number) {
  return std::string(reinterpret_cast<const char*>(&number), sizeof(number));
}

std::string Text(const std::string& text) { return NumberBytes<uint64_t>(text.size()) + text; }

std::string Full() {
  return "the store exceeds its limit of " + std::to_string(kMaxStoreBytes >> 20) + " MiB";
}

}  // namespace

struct Store::Handler {
  using Result = std::optional<std::string>;

  Store& store;
  const ConnectionId client;
  const int64_t now_ms;

  void Send(const std::string& bytes) { store.send_(client, bytes); }
  std::string ValueOf(const std::string& key) {
    const KeyStore::Entry* const entry = store.keys_.Find(key);
    return entry == nullptr ? std::string() : entry->value;
  }
  Result Write(const std::string& key, std::string value) {
    if (!store.keys_.Set(key, std::move(value), client)) return Full();
    store.Wake(key);
    return std::nullopt;
  }
  // Adds to a counter; `sum` receives the result.
  Result Count(const std::string& key, int64_t amount, int64_t& sum) {
    const std::optional<int64_t> counted = store.keys_.Add(key, amount, client);
    if (!counted.has_value()) {
      return "it added to a key that does not hold a number, or " + Full();
    }
    sum = *counted;
    return std::nullopt;
  }

  Result operator()(Ping& ping) {
    Send(NumberBytes(ping.nonce));
    return std::nullopt;
  }
  Result operator()(Set& set) { return Write(set.key, std::move(set.value)); }
  Result operator()(CompareSet& set) {
    const KeyStore::Entry* const entry = store.keys_.Find(set.key);
    Result result;
    if (entry == nullptr ? set.expected.empty() : entry->value == set.expected) {
      result = Write(set.key, std::move(set.desired));
    } else if (entry == nullptr) {
      Send(Text(set.expected));
      return std::nullopt;
    }
    Send(Text(ValueOf(set.key)));
    return result;
  }
  Result operator()(Get& get) {
    Send(Text(ValueOf(get.key)));
    return std::nullopt;
  }
  Result operator()(Add& add) {
    int64_t sum = 0;
    if (Result failed = Count(add.key, add.amount, sum)) return failed;
    if (add.amount == 0) {
      const auto [wait, is_new] =
          store.waits_.emplace(client, CounterPoll{add.key, now_ms, now_ms});
      if (!is_new) std::get<CounterPoll>(wait->second).latest_ms = now_ms;
    }
    store.Wake(add.key);
    Send(NumberBytes(sum));
    return std::nullopt;
  }
  Result operator()(Check& check) {
    const bool ready = std::all_of(check.keys.begin(), check.keys.end(),
                                   [this](const std::string& k) { return store.keys_.Exists(k); });
    Send({ready ? kReady : kNotReady});
    return std::nullopt;
  }
  Result operator()(Wait& wait) {
    store.StartWait(client, wait.keys, now_ms);
    return std::nullopt;
  }
  Result operator()(CancelWait&) {
    Send({kWaitCancelled});
    return std::nullopt;
  }
  Result operator()(CountKeys&) {
    Send(NumberBytes<int64_t>(static_cast<int64_t>(store.keys_.entries().size())));
    return std::nullopt;
  }
  Result operator()(ListKeys&) {
    std::string answer = NumberBytes<int64_t>(static_cast<int64_t>(store.keys_.entries().size()));
    for (const auto& [key, entry] : store.keys_.entries()) answer += Text(key);
    Send(answer);
    return std::nullopt;
  }
  Result operator()(DeleteKey& key) {
    Send(NumberBytes<int64_t>(store.keys_.Delete(key.key) ? 1 : 0));
    return std::nullopt;
  }
  Result operator()(c10d_store::Append& append) {
    if (!store.keys_.Append(append.key, append.value, client)) return Full();
    store.Wake(append.key);
    return std::nullopt;
  }
  Result operator()(MultiGet& get) {
    std::string answer;
    for (const std::string& key : get.keys) answer += Text(ValueOf(key));
    Send(answer);
    return std::nullopt;
  }
  Result operator()(MultiSet& set) {
    for (auto& [key, value] : set.entries) {
      if (Result failed = Write(key, std::move(value))) return failed;
    }
    return std::nullopt;
  }
  Result operator()(QueuePush& push) {
    if (!store.keys_.Push(push.key, std::move(push.value))) return Full();
    store.WakeOne(push.key);
    return std::nullopt;
  }
  Result operator()(QueuePop& pop) {
    std::string answer =
        NumberBytes<int64_t>(static_cast<int64_t>(store.keys_.QueueLength(pop.key)));
    const std::optional<std::string> value = store.keys_.Pop(pop.key);
    if (value.has_value()) answer += Text(*value);
    Send(answer);
    return std::nullopt;
  }
  Result operator()(QueueLength& length) {
    Send(NumberBytes<int64_t>(static_cast<int64_t>(store.keys_.QueueLength(length.key))));
    return std::nullopt;
  }
  Result operator()(Barrier& barrier) {
    int64_t arrived = 0;
    if (Result failed = Count(barrier.key, 1, arrived)) return failed;
    if (arrived >= barrier.world_size) {
      store.Wake(barrier.key);
      Send({kWaitEnded});
      return std::nullopt;
    }
    store.waits_[client] = BarrierWait{barrier.key, barrier.world_size, now_ms};
    store.waiting_[barrier.key].push_back(client);
    return std::nullopt;
  }
};

std::optional<std::string> Store::Handle(ConnectionId client, Request request, int64_t now_ms) {
  const auto wait = waits_.find(client);
  if (wait != waits_.end()) {
    const auto* const add = std::get_if<Add>(&request);
    const auto* const poll = std::get_if<CounterPoll>(&wait->second);
    const bool goes_on =
        add != nullptr && poll != nullptr && add->amount == 0 && add->key == poll->key;
    const auto* const keys = std::get_if<KeyWait>(&wait->second);
    if (keys != nullptr && std::holds_alternative<CancelWait>(request)) {
      timed_out_[client] = {keys->missing, keys->since_ms, now_ms + kRepeatMs};
    }
    if (!goes_on) EndWait(client);
  }
  return std::visit(Handler{*this, client, now_ms}, request);
}

void Store::OnClose(ConnectionId client) {
  EndWait(client);
  timed_out_.erase(client);
}

void Store::StartWait(ConnectionId client, const std::vector<std::string>& keys, int64_t now_ms) {
  KeyWait wait;
  for (const std::string& key : keys) {
    if (!keys_.Exists(key)) wait.missing.insert(key);
  }
  if (wait.missing.empty()) {
    timed_out_.erase(client);
    return send_(client, {kWaitEnded});
  }
  const auto earlier = timed_out_.find(client);
  const bool repeated = earlier != timed_out_.end() && earlier->second.until_ms >= now_ms &&
                        earlier->second.missing == wait.missing;
  wait.since_ms = repeated ? earlier->second.since_ms : now_ms;
  if (earlier != timed_out_.end()) timed_out_.erase(earlier);
  for (const std::string& key : wait.missing) waiting_[key].push_back(client);
  waits_[client] = std::move(wait);
}

void Store::EndWait(ConnectionId client) {
  const auto wait = waits_.find(client);
  if (wait == waits_.end()) return;
  std::set<std::string> keys;
  if (const auto* const for_keys = std::get_if<KeyWait>(&wait->second)) keys = for_keys->missing;
  if (const auto* const barrier = std::get_if<BarrierWait>(&wait->second)) keys = {barrier->key};
  for (const std::string& key : keys) {
    const auto clients = waiting_.find(key);
    if (clients == waiting_.end()) continue;
    clients->second.remove(client);
    if (clients->second.empty()) waiting_.erase(clients);
  }
  waits_.erase(wait);
}

void Store::OnKey(ConnectionId client, const std::string& key) {
  const auto wait = waits_.find(client);
  if (wait == waits_.end()) return;
  if (auto* const keys = std::get_if<KeyWait>(&wait->second)) {
    keys->missing.erase(key);
    if (!keys->missing.empty()) return;
  }
  waits_.erase(wait);
  send_(client, {kWaitEnded});
}

void Store::Wake(const std::string& key) {
  const auto clients = waiting_.find(key);
  if (clients == waiting_.end()) return;
  const std::list<ConnectionId> woken = std::move(clients->second);
  waiting_.erase(clients);
  for (const ConnectionId client : woken) OnKey(client, key);
}

void Store::WakeOne(const std::string& key) {
  const auto clients = waiting_.find(key);
  if (clients == waiting_.end()) return;
  const ConnectionId woken = clients->second.front();
  clients->second.pop_front();
  if (clients->second.empty()) waiting_.erase(clients);
  OnKey(woken, key);
}

}  // namespace muster::c10d_store
