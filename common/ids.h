// Strong types for ids, so that ids of different kinds cannot be confused.
#ifndef MUSTER_COMMON_IDS_H_
#define MUSTER_COMMON_IDS_H_

#include <cstdint>
#include <ostream>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"

namespace muster {

// An ordered, hashable wrapper. Ids with different tags neither compare nor convert.
template <typename Tag, typename Value>
class StrongId {
 public:
  StrongId() = default;
  explicit StrongId(Value value) : value_(std::move(value)) {}
  const Value& value() const { return value_; }

  friend bool operator==(const StrongId& a, const StrongId& b) { return a.value_ == b.value_; }
  friend bool operator!=(const StrongId& a, const StrongId& b) { return !(a == b); }
  friend bool operator<(const StrongId& a, const StrongId& b) { return a.value_ < b.value_; }
  template <typename H>
  friend H AbslHashValue(H h, const StrongId& id) {
    return H::combine(std::move(h), id.value_);
  }
  friend std::ostream& operator<<(std::ostream& out, const StrongId& id) {
    return out << id.value_;
  }

 private:
  Value value_{};
};

using JobId = StrongId<struct JobIdTag, std::string>;
using NodeName = StrongId<struct NodeNameTag, std::string>;
// A start of a job with one set of ranks, numbered 1, 2, …; 0 before the first.
using Generation = StrongId<struct GenerationTag, uint64_t>;
// Global rank, 0..world_size-1.
using Rank = StrongId<struct RankTag, uint32_t>;
// Random id of one run of a daemon.
using Incarnation = StrongId<struct IncarnationTag, uint64_t>;
// One session stream of a worker, numbered by the coordinator that accepted it.
using SessionId = StrongId<struct SessionIdTag, uint64_t>;
// A client call that waits for its reply.
using RequestId = StrongId<struct RequestIdTag, uint64_t>;

}  // namespace muster

#endif  // MUSTER_COMMON_IDS_H_
