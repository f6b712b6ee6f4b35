// Selects the rank of a hung generation that the other ranks probably wait for.
#ifndef MUSTER_COORDINATOR_CORE_RECOVERY_HANG_SUSPECT_H_
#define MUSTER_COORDINATOR_CORE_RECOVERY_HANG_SUSPECT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "proto/muster/v1/job.pb.h"

namespace muster::core {

struct SilentRank {
  uint32_t rank = 0;
  std::string node;
  std::optional<v1::RankInspection> inspection;  // nothing: its node did not answer in time
};

struct Suspicion {
  std::vector<uint32_t> ranks;  // candidates; several if the evidence does not decide
  std::string message;          // human-readable reason
};

// Decides by the first of these that applies:
//   1. processes that are stopped (SIGSTOP, a debugger) or gone;
//   2. ranks whose main thread is not in a collective while that of others is;
//   3. ranks whose node did not answer while all others wait in collectives;
//   4. ranks that differ from the largest group of ranks that wait in the same way, such as one
//      rank in a barrier while the others are in an all-reduce.
// Otherwise all ranks are candidates. Stacks have a header line per thread ("main thread…" or
// "thread…") above its indented frames; without stacks, a rank that waits for a futex may be in a
// collective.
Suspicion FindSuspect(const std::vector<SilentRank>& ranks);

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_RECOVERY_HANG_SUSPECT_H_
