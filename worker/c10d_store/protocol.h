// The protocol of TCPStore clients: requests and their decoder, with the requests of workers of
// other nodes.
#ifndef MUSTER_WORKER_C10D_STORE_PROTOCOL_H_
#define MUSTER_WORKER_C10D_STORE_PROTOCOL_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace muster::c10d_store {

// The connection of a worker of another node to the store, over which the store asks which ranks of
// that node its clients are.
//
// The worker sends kIntroduction. The store then sends ports of clients that have connected from
// the worker's address, 16 bits each, and the worker answers for those whose rank it knows.

// Types of request that PyTorch does not have.
inline constexpr uint8_t kIntroduceType = 240;
inline constexpr uint8_t kNameRankType = 241;

// The greeting of PyTorch 2 and a request of kIntroduceType.
inline constexpr std::string_view kIntroduction("\0\xCE\xF7\x85\x3C\xF0", 6);

// The answer for a client; see NameRank.
std::string EncodeNameRank(uint16_t port, uint32_t rank);

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

// Requests of a worker of another node, see kIntroduction.
struct Introduce {};
// The rank that has connected from the worker's address and this port.
struct NameRank {
  uint16_t port = 0;
  uint32_t rank = 0;
};
using WorkerRequest = std::variant<Introduce, NameRank>;

// Limits of one request. PyTorch's own server accepts keys of the same length and smaller values.
inline constexpr size_t kMaxKeyBytes = 8 << 10;
inline constexpr size_t kMaxValueBytes = 64 << 20;
inline constexpr size_t kMaxKeys = 128 << 10;
inline constexpr size_t kMaxRequestBytes = 2 * kMaxValueBytes + (1 << 20);

// The request is not complete yet.
struct Incomplete {};
// The client cannot be served: it speaks another protocol or exceeds a limit. The decoder must not
// be used any further.
struct Refused {
  std::string reason;
};

// Supports two versions of the protocol. The first request tells them apart:
// - that of PyTorch 1.13: no greeting, nine types of request;
// - that of PyTorch 2.x with a greeting, the number kGreeting in a request of type 0.
class RequestDecoder {
 public:
  void Append(std::string_view bytes);
  // The next request. Call it until it returns Incomplete.
  std::variant<Incomplete, Refused, Request, WorkerRequest> Next();

 private:
  enum class Version : uint8_t { kUnknown, kWithoutGreeting, kWithGreeting };

  // False until the version is known.
  bool ReadVersion();

  Version version_ = Version::kUnknown;
  std::string input_;
  size_t consumed_ = 0;  // bytes of input_
  size_t needed_ = 1;    // unconsumed bytes without which the next request is incomplete
};

}  // namespace muster::c10d_store

#endif  // MUSTER_WORKER_C10D_STORE_PROTOCOL_H_
