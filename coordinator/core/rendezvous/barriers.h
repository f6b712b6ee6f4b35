// The barriers of one generation. A group is a series of barriers of all ranks, numbered from 1.
//
// In memory only: workers repeat to a restarted coordinator the arrivals, and the barriers that
// ranks have passed, from which the other ranks may then be released. The store has the barriers
// that ranks which have exited passed before.
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
#include "common/time/time.h"
#include "proto/muster/v1/worker.pb.h"

namespace muster::core {

class BarrierTable {
 public:
  explicit BarrierTable(uint32_t world_size) : world_size_(world_size) {}

  struct Outcome {
    bool already_released = false;        // before this arrival: release the arriving node
    std::vector<v1::BarrierId> released;  // by this arrival, the last: release all nodes
  };
  // `ranks` are ranks of the arriving node. Repeated arrivals count once. Arrival at a barrier
  // implies arrival at all earlier ones of the group. Errors: INVALID_ARGUMENT, RESOURCE_EXHAUSTED
  // (a limit of common/limits.h).
  absl::StatusOr<Outcome> Arrive(const v1::BarrierId& barrier, absl::Span<const uint32_t> ranks,
                                 SteadyTime now);

  // Records that a rank has passed this barrier, so that all ranks may pass it and the earlier ones
  // of its group. Returns the open barriers that this releases.
  std::vector<v1::BarrierId> MarkPassed(const v1::BarrierId& barrier);

  // The newest passed barrier of each group.
  const std::map<std::string, uint64_t>& passed() const { return released_; }

  // Closes a barrier that can never be passed; a later arrival opens it again.
  void Abort(const v1::BarrierId& barrier);

  struct Open {
    v1::BarrierId barrier;
    SteadyTime since;
    uint32_t missing = 0;  // number of ranks that have not arrived
  };
  bool HasOpen() const { return !open_.empty(); }
  std::vector<Open> ListOpen() const;
  // The ranks that have not arrived at an open barrier.
  std::vector<uint32_t> Missing(const v1::BarrierId& barrier) const;
  // Time from the first to the last arrival at the barrier that was released last.
  absl::Duration last_wait() const { return last_wait_; }

 private:
  struct Arrivals {
    std::set<uint32_t> ranks;
    SteadyTime since;
  };
  using Key = std::pair<std::string, uint64_t>;

  uint32_t world_size_;
  std::map<Key, Arrivals> open_;
  std::map<std::string, uint64_t> released_;  // group -> highest released sequence
  absl::Duration last_wait_;
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_RENDEZVOUS_BARRIERS_H_
