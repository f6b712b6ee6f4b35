// The requests of PyTorch's TCPStore clients, and those of workers.
#ifndef MUSTER_WORKER_C10D_STORE_REQUEST_H_
#define MUSTER_WORKER_C10D_STORE_REQUEST_H_

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace muster::c10d_store {

// Each answer is noted: a number is 64 bits wide and a text is its length, 64 bits wide, and its
// bytes; all little-endian. Requests without a note have no answer.

struct Ping {  // the nonce, 32 bits
  uint32_t nonce = 0;
};
struct Set {
  std::string key;
  std::string value;
};
// The key's value afterwards; `expected` if the key does not exist and `expected` is not empty.
struct CompareSet {
  std::string key;
  std::string expected;
  std::string desired;
};
struct Get {  // the value; empty if the key does not exist
  std::string key;
};
struct Add {  // the sum
  std::string key;
  int64_t amount = 0;
};
struct Check {  // one byte: 0 if all keys exist, else 1
  std::vector<std::string> keys;
};
struct Wait {  // one byte, 0, once all keys exist
  std::vector<std::string> keys;
};
struct CancelWait {};  // one byte, 1
struct CountKeys {};   // the number of keys
struct ListKeys {};    // the number of keys, and each key as a text
struct DeleteKey {     // the number of deleted keys
  std::string key;
};
struct Append {
  std::string key;
  std::string value;
};
struct MultiGet {  // as Get, for each key
  std::vector<std::string> keys;
};
struct MultiSet {
  std::vector<std::pair<std::string, std::string>> entries;
};
struct QueuePush {
  std::string key;
  std::string value;
};
struct QueuePop {  // the length of the queue before; if it is not 0, the first value
  std::string key;
};
struct QueueLength {  // the length of the queue
  std::string key;
};
struct Barrier {  // one byte, 0, once `world_size` requests for the key have arrived
  std::string key;
  int64_t world_size = 0;
};

using Request =
    std::variant<Ping, Set, CompareSet, Get, Add, Check, Wait, CancelWait, CountKeys, ListKeys,
                 DeleteKey, Append, MultiGet, MultiSet, QueuePush, QueuePop, QueueLength, Barrier>;

// Requests of a worker of another node; see worker_link.h.
struct Introduce {};
// The rank that has connected from the worker's address and this port.
struct NameRank {
  uint16_t port = 0;
  uint32_t rank = 0;
};
using WorkerRequest = std::variant<Introduce, NameRank>;

}  // namespace muster::c10d_store

#endif  // MUSTER_WORKER_C10D_STORE_REQUEST_H_
