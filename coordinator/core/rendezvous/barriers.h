// The barriers of one generation. Each group is a series of barriers, numbered from 1, each of all
// ranks.
//
// In memory only: a coordinator that was restarted hears of arrivals again from the workers, and
// from the barriers that ranks were already released from learns that the others may go.
#ifndef MUSTER_COORDINATOR_CORE_RENDEZVOUS_BARRIERS_H_
#define MUSTER_COORDINATOR_CORE_RENDEZVOUS_BARRIERS_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/time.h"
#include "proto/muster/v1/worker.pb.h"

namespace muster::core {

class BarrierTable {
 public:
  explicit BarrierTable(uint32_t world_size) : world_size_(world_size) {}

  struct Outcome {
    bool already_released = false;        // whoever asked is to be told
    std::vector<v1::BarrierId> released;  // everybody is to be told: this arrival was the last one
  };
  // `ranks` are known to be the asking node's own. Arriving twice is arriving once. A rank that
  // arrives at a barrier has arrived at those before it in the group. Errors: INVALID_ARGUMENT,
  // RESOURCE_EXHAUSTED (a bound of common/limits.h).
  absl::StatusOr<Outcome> Arrive(const v1::BarrierId& barrier, absl::Span<const uint32_t> ranks,
                                 SteadyTime now);

  // Somebody was released from this one, thus everybody may go from it and those before it. Returns
  // the open barriers that this releases.
  std::vector<v1::BarrierId> MarkPassed(const v1::BarrierId& barrier);

  // It will never be passed; whoever arrives opens it anew.
  void Abort(const v1::BarrierId& barrier);

  struct Open {
    v1::BarrierId barrier;
    SteadyTime since;
    uint32_t missing = 0;  // how many ranks have not arrived
  };
  std::vector<Open> ListOpen() const;
  // The ranks that have not arrived at an open barrier.
  std::vector<uint32_t> Missing(const v1::BarrierId& barrier) const;
  // How long the one that was released last was open.
  absl::Duration last_wait() const { return last_wait_; }

 private:
  struct Arrivals {
    std::set<uint32_t> ranks;
    SteadyTime since;
  };
  using Key = std::pair<std::string, uint64_t>;

  uint32_t world_size_;
  std::map<Key, Arrivals> open_;
  std::map<std::string, uint64_t> released_;  // group -> the newest that was
  absl::Duration last_wait_;
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_RENDEZVOUS_BARRIERS_H_
