// Identity of the coordinator's store, by which workers recognize an empty store, one that was
// restored from a copy, or that of another cluster.
#ifndef MUSTER_COORDINATOR_CORE_STORE_IDENTITY_H_
#define MUSTER_COORDINATOR_CORE_STORE_IDENTITY_H_

#include <cstdint>
#include <string>

namespace muster::core {

struct StoreIdentity {
  std::string cluster_id;     // drawn when the store was created
  uint64_t commit_index = 0;  // raised by every step that writes
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_STORE_IDENTITY_H_
