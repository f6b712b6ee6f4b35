// The barriers of one generation. Each group is a series of barriers of all ranks, numbered from 1.
//
// In memory only: workers report arrivals again to a coordinator that was restarted, and also the
// barriers that ranks have passed, from which the other ranks may then be released.
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
    bool already_released = false;        // release the asking node
    std::vector<v1::BarrierId> released;  // release all nodes: this was the last arrival
  };
  // `ranks` belong to the asking node. Arriving twice counts once. A rank that arrives at a barrier
  // has arrived at those before it in the group. Errors: INVALID_ARGUMENT,
  // RESOURCE_EXHAUSTED (a bound of common/limits.h).
  absl::StatusOr<Outcome> Arrive(const v1::BarrierId& barrier, absl::Span<const uint32_t> ranks,
                                 SteadyTime now);

  // A rank has passed this barrier: all ranks may pass it and those before it. Returns the open
  // barriers that this releases.
  std::vector<v1::BarrierId> MarkPassed(const v1::BarrierId& barrier);

  // Closes a barrier that will never be passed; a later arrival opens it anew.
  void Abort(const v1::BarrierId& barrier);

  struct Open {
    v1::BarrierId barrier;
    SteadyTime since;
    uint32_t missing = 0;  // how many ranks have not arrived
  };
  std::vector<Open> ListOpen() const;
  // The ranks that have not arrived at an open barrier.
  std::vector<uint32_t> Missing(const v1::BarrierId& barrier) const;
  // How long the last released barrier was open.
  absl::Duration last_wait() const { return last_wait_; }

 private:
  struct Arrivals {
    std::set<uint32_t> ranks;
    SteadyTime since;
  };
  using Key = std::pair<std::string, uint64_t>;

  uint32_t world_size_;
  std::map<Key, Arrivals> open_;
  std::map<std::string, uint64_t> released_;  // group -> the newest released
  absl::Duration last_wait_;
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_RENDEZVOUS_BARRIERS_H_
