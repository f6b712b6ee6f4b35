#include "worker/c10d_store/protocol.h"

#include <cstring>
#include <optional>
#include <utility>
#include <vector>

namespace muster::c10d_store {
namespace {

constexpr uint32_t kGreeting = 0x3C85F7CE;
constexpr size_t kGreetingBytes = 1 + sizeof(kGreeting);
// Requests are erased from the input once they amount to this.
constexpr size_t kCompactBytes = 64 << 10;
constexpr size_t kMaxIdleBytes = 1 << 20;

// Reads the fields of one request. After a failure, which is either a lack of bytes or a violated
// limit, all reads return empty values.
class Fields {
 public:
  explicit Fields(std::string_view bytes) : bytes_(bytes) {}

  template <typename Number>
  Number ReadNumber() {
    Number number = 0;
    const std::string_view bytes = Read(sizeof(number));
    if (!bytes.empty()) std::memcpy(&number, bytes.data(), sizeof(number));
    return number;
  }

  std::string ReadKey() { return ReadText("a key", kMaxKeyBytes); }
  std::string ReadValue() { return ReadText("a value", kMaxValueBytes); }

  std::vector<std::string> ReadKeys() {
    std::vector<std::string> keys;
    for (uint64_t left = ReadCount(); left > 0 && ok(); --left) keys.push_back(ReadKey());
    return keys;
  }

  std::vector<std::pair<std::string, std::string>> ReadEntries() {
    std::vector<std::pair<std::string, std::string>> entries;
    for (uint64_t left = ReadCount(); left > 0 && ok(); --left) {
      std::string key = ReadKey();
      entries.emplace_back(std::move(key), ReadValue());
    }
    return entries;
  }

  bool ok() const { return missing_ == 0 && violation_.empty(); }
  // How many bytes the request has at least.
  size_t needed() const { return position_ + missing_; }
  size_t position() const { return position_; }
  const std::string& violation() const { return violation_; }

 private:
  std::string_view Read(size_t size) {
    if (!ok()) return {};
    if (bytes_.size() - position_ < size) {
      missing_ = size;
      if (needed() > kMaxRequestBytes) Violate("a request", needed(), kMaxRequestBytes, " bytes");
      return {};
    }
    const std::string_view read = bytes_.substr(position_, size);
    position_ += size;
    return read;
  }

  std::string ReadText(const char* what, size_t limit) {
    const uint64_t size = ReadNumber<uint64_t>();
    if (size > limit) Violate(what, size, limit, " bytes");
    return std::string(Read(size));
  }

  uint64_t ReadCount() {
    const uint64_t count = ReadNumber<uint64_t>();
    if (count > kMaxKeys) Violate("a request", count, kMaxKeys, " keys");
    return ok() ? count : 0;
  }

  void Violate(const char* what, uint64_t actual, size_t limit, const char* unit) {
    if (!violation_.empty()) return;
    violation_ = std::string(what) + " has " + std::to_string(actual) + unit + "; the limit is " +
                 std::to_string(limit);
  }

  const std::string_view bytes_;
  size_t position_ = 0;
  size_t missing_ = 0;
  std::string violation_;
};

using Reader = Request (*)(Fields&);

Request ReadPing(Fields& fields) { return Ping{fields.ReadNumber<uint32_t>()}; }
Request ReadSet(Fields& fields) {
  Set set{fields.ReadKey(), {}};
  set.value = fields.ReadValue();
  return set;
}
Request ReadCompareSet(Fields& fields) {
  CompareSet set{fields.ReadKey(), {}, {}};
  set.expected = fields.ReadValue();
  set.desired = fields.ReadValue();
  return set;
}
Request ReadGet(Fields& fields) { return Get{fields.ReadKey()}; }
Request ReadAdd(Fields& fields) {
  Add add{fields.ReadKey(), 0};
  add.amount = fields.ReadNumber<int64_t>();
  return add;
}
Request ReadCheck(Fields& fields) { return Check{fields.ReadKeys()}; }
Request ReadWait(Fields& fields) { return Wait{fields.ReadKeys()}; }
Request ReadCancelWait(Fields&) { return CancelWait{}; }
Request ReadCountKeys(Fields&) { return CountKeys{}; }
Request ReadListKeys(Fields&) { return ListKeys{}; }
Request ReadDeleteKey(Fields& fields) { return DeleteKey{fields.ReadKey()}; }
Request ReadAppend(Fields& fields) {
  Append append{fields.ReadKey(), {}};
  append.value = fields.ReadValue();
  return append;
}
Request ReadMultiGet(Fields& fields) { return MultiGet{fields.ReadKeys()}; }
Request ReadMultiSet(Fields& fields) { return MultiSet{fields.ReadEntries()}; }
Request ReadQueuePush(Fields& fields) {
  QueuePush push{fields.ReadKey(), {}};
  push.value = fields.ReadValue();
  return push;
}
Request ReadQueuePop(Fields& fields) { return QueuePop{fields.ReadKey()}; }
Request ReadQueueLength(Fields& fields) { return QueueLength{fields.ReadKey()}; }
Request ReadBarrier(Fields& fields) {
  Barrier barrier{fields.ReadKey(), 0};
  barrier.world_size = fields.ReadNumber<int64_t>();
  return barrier;
}

// By type of request. Null: not supported.
constexpr Reader kWithoutGreeting[] = {
    ReadSet,         // 0
    ReadCompareSet,  // 1
    ReadGet,         // 2
    ReadAdd,         // 3
    ReadCheck,       // 4
    ReadWait,        // 5
    ReadCountKeys,   // 6
    nullptr,         // 7, WATCH_KEY, which Python programs cannot send
    ReadDeleteKey,   // 8
};
constexpr Reader kWithGreeting[] = {
    nullptr,          // 0, the greeting, which is sent once
    ReadSet,          // 1
    ReadCompareSet,   // 2
    ReadGet,          // 3
    ReadAdd,          // 4
    ReadCheck,        // 5
    ReadWait,         // 6
    ReadCountKeys,    // 7
    ReadDeleteKey,    // 8
    ReadAppend,       // 9
    ReadMultiGet,     // 10
    ReadMultiSet,     // 11
    ReadCancelWait,   // 12
    ReadPing,         // 13
    ReadQueuePush,    // 14
    ReadQueuePop,     // 15
    ReadQueueLength,  // 16
    ReadListKeys,     // 17
    ReadBarrier,      // 18
};

WorkerRequest ReadWorkerRequest(uint8_t type, Fields& fields) {
  if (type == kIntroduceType) return Introduce{};
  NameRank name{fields.ReadNumber<uint16_t>(), 0};
  name.rank = fields.ReadNumber<uint32_t>();
  return name;
}

template <size_t size>
Reader Find(const Reader (&readers)[size], uint8_t type) {
  return type < size ? readers[type] : nullptr;
}

}  // namespace

std::string EncodeNameRank(uint16_t port, uint32_t rank) {
  std::string bytes(1, static_cast<char>(kNameRankType));
  bytes.append(reinterpret_cast<const char*>(&port), sizeof(port));
  bytes.append(reinterpret_cast<const char*>(&rank), sizeof(rank));
  return bytes;
}

void RequestDecoder::Append(std::string_view bytes) {
  if (consumed_ == input_.size() || consumed_ >= kCompactBytes) {
    input_.erase(0, consumed_);
    consumed_ = 0;
    // The memory of a large request.
    if (input_.capacity() > kMaxIdleBytes && input_.size() < kCompactBytes) input_.shrink_to_fit();
  }
  input_.append(bytes);
}

bool RequestDecoder::ReadVersion() {
  const std::string_view input = std::string_view(input_).substr(consumed_);
  if (input.empty()) return false;
  uint32_t number = 0;
  // Type 0 is the greeting of one version and Set of the other. Set continues with the length of a
  // key, which is not that large.
  if (input[0] == 0) {
    if (input.size() < kGreetingBytes) return false;
    std::memcpy(&number, input.data() + 1, sizeof(number));
  }
  if (number != kGreeting) {
    version_ = Version::kWithoutGreeting;
    return true;
  }
  version_ = Version::kWithGreeting;
  consumed_ += kGreetingBytes;
  return true;
}

std::variant<Incomplete, Refused, Request, WorkerRequest> RequestDecoder::Next() {
  if (version_ == Version::kUnknown && !ReadVersion()) return Incomplete{};
  const std::string_view input = std::string_view(input_).substr(consumed_);
  if (input.size() < needed_) return Incomplete{};

  const auto type = static_cast<uint8_t>(input[0]);
  const bool greeted = version_ == Version::kWithGreeting;
  Fields fields(input.substr(1));
  const auto finish =
      [&](auto request) -> std::variant<Incomplete, Refused, Request, WorkerRequest> {
    if (!fields.violation().empty()) return Refused{fields.violation()};
    if (!fields.ok()) {
      needed_ = 1 + fields.needed();
      return Incomplete{};
    }
    consumed_ += 1 + fields.position();
    needed_ = 1;
    return request;
  };
  if (greeted && (type == kIntroduceType || type == kNameRankType)) {
    return finish(ReadWorkerRequest(type, fields));
  }
  const Reader reader = greeted ? Find(kWithGreeting, type) : Find(kWithoutGreeting, type);
  if (reader == nullptr) {
    return Refused{"it sent a request of type " + std::to_string(type) +
                   (greeted ? " after" : " without") +
                   " the greeting of PyTorch 2; supported are the protocols of PyTorch 1.13 and "
                   "2.15"};
  }
  return finish(reader(fields));
}

}  // namespace muster::c10d_store
