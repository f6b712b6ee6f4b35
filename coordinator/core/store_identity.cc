#include "coordinator/core/store_identity.h"

namespace muster::core {

uint64_t StoreIdentity::LastCommitOf(absl::string_view start) const {
  uint64_t last = commit_index;
  for (auto entry = starts.rbegin(); entry != starts.rend(); ++entry) {
    if (entry->id == start) return last;
    last = entry->first_commit - 1;
  }
  return 0;
}

}  // namespace muster::core
