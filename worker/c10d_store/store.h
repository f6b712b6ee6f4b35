// The store: answers requests, and keeps the clients that wait.
#ifndef MUSTER_WORKER_C10D_STORE_STORE_H_
#define MUSTER_WORKER_C10D_STORE_STORE_H_

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "worker/c10d_store/key_store.h"
#include "worker/c10d_store/protocol.h"

namespace muster::c10d_store {

// A client waits for one of the following; see Store::waits.
struct KeyWait {
  std::set<std::string> missing;  // keys
  int64_t since_ms = 0;
};
struct BarrierWait {
  std::string key;
  int64_t world_size = 0;
  int64_t since_ms = 0;
};
// The client reads the same counter, with Add of 0, again and again: PyTorch 1.13 waits in this way
// for the other ranks at the end of init_process_group and new_group.
struct CounterPoll {
  std::string key;
  int64_t since_ms = 0;
  int64_t latest_ms = 0;  // when it read the counter last
};
using ClientWait = std::variant<KeyWait, BarrierWait, CounterPoll>;

// Not thread-safe; uses no clock or I/O. Times are on the caller's clock.
class Store {
 public:
  // `send` is called with the answers to requests, in order. It must not call the store.
  using Send = std::function<void(ConnectionId client, const std::string& bytes)>;
  explicit Store(Send send) : send_(std::move(send)) {}

  // Returns why the client cannot be served any further; nothing if it can.
  std::optional<std::string> Handle(ConnectionId client, Request request, int64_t now_ms);
  // The client has gone: it waits no longer.
  void OnClose(ConnectionId client);

  const KeyStore& keys() const { return keys_; }
  // By client. A CounterPoll stays until the client's next request, even if the client no longer
  // waits.
  const std::map<ConnectionId, ClientWait>& waits() const { return waits_; }

 private:
  // A wait that timed out. PyTorch repeats it when it only wanted to log.
  struct TimedOutWait {
    std::set<std::string> missing;
    int64_t since_ms = 0;
    int64_t until_ms = 0;
  };
  struct Handler;  // handles each type of request

  void EndWait(ConnectionId client);
  void StartWait(ConnectionId client, const std::vector<std::string>& keys, int64_t now_ms);
  // The key has a value: wakes all clients that wait for it.
  void Wake(const std::string& key);
  // The queue has a new value: wakes the client that has waited longest.
  void WakeOne(const std::string& key);
  void OnKey(ConnectionId client, const std::string& key);

  const Send send_;
  KeyStore keys_;
  std::map<ConnectionId, ClientWait> waits_;
  std::map<std::string, std::list<ConnectionId>> waiting_;  // by key, in order of arrival
  std::map<ConnectionId, TimedOutWait> timed_out_;
};

}  // namespace muster::c10d_store

#endif  // MUSTER_WORKER_C10D_STORE_STORE_H_
