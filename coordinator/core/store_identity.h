// Identity of the coordinator's store, by which workers recognize an empty store, one that was
// restored from a copy, or that of another cluster.
#ifndef MUSTER_COORDINATOR_CORE_STORE_IDENTITY_H_
#define MUSTER_COORDINATOR_CORE_STORE_IDENTITY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace muster::core {

// A start of a coordinator on the store. All commits from the first one until the next start are
// its own.
struct CoordinatorStart {
  std::string id;  // random
  uint64_t first_commit = 0;
  // Where the coordinator listened; empty if it never did.
  std::string machine_id = "";
  std::string address = "";
};

struct StoreIdentity {
  std::string cluster_id;                // drawn when the store was created
  uint64_t commit_index = 0;             // raised by every step that writes
  std::vector<CoordinatorStart> starts;  // oldest first

  // The coordinator's term: the number of its start.
  uint64_t term() const { return starts.size(); }
  // Returns the last commit of that start which the store has; 0 if the store does not have the
  // start. A copy of the store lacks the commits that were made after it: once a coordinator has
  // started on the copy, the numbers of the missing commits belong to other starts.
  uint64_t LastCommitOf(absl::string_view start) const {
    uint64_t last = commit_index;
    for (auto entry = starts.rbegin(); entry != starts.rend(); ++entry) {
      if (entry->id == start) return last;
      last = entry->first_commit - 1;
    }
    return 0;
  }
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_STORE_IDENTITY_H_
