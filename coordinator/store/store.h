// Storage of the coordinator's records: keys and serialized messages of
// proto/muster/v1/store.proto.
//
// The interface is what an embedded database and a replicated one (etcd) both do well: an atomic
// batch of puts and deletes, and a scan. coordinator/core makes all decisions; a store only keeps
// records.
#ifndef MUSTER_COORDINATOR_STORE_STORE_H_
#define MUSTER_COORDINATOR_STORE_STORE_H_

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace muster::store {

// One write: puts the value, or deletes the key when there is none (a missing key is not an error).
struct Mutation {
  std::string key;
  std::optional<std::string> value;
};

struct Record {
  std::string key;
  std::string value;
};

// Space for further records.
struct Space {
  uint64_t free_bytes = std::numeric_limits<uint64_t>::max();
  uint64_t reserved_bytes = 0;  // that users may not take
};

// Thread-safe: Scan and Measure may run concurrently with Commit; callers must not run Commit
// concurrently.
class Store {
 public:
  virtual ~Store() = default;

  // Commits the whole batch or nothing; after OK, the batch survives power loss. If a batch has
  // several mutations of a key, the last one wins. After an error the state is unknown, and the
  // caller must end and load it again. Errors: RESOURCE_EXHAUSTED (disk full), INTERNAL,
  // FAILED_PRECONDITION (fenced: another coordinator leads).
  virtual absl::Status Commit(absl::Span<const Mutation> batch) = 0;
  // The same, but the batch survives power loss only once a later Commit has returned OK. Before
  // that, a power loss may undo the newest of such batches, never one without those after it.
  virtual absl::Status CommitUnsynced(absl::Span<const Mutation> batch) { return Commit(batch); }

  // All records whose keys begin with `prefix`, in byte order of the keys. Errors: DATA_LOSS
  // (damaged), INTERNAL.
  virtual absl::StatusOr<std::vector<Record>> Scan(absl::string_view prefix) const = 0;

  // Unlimited if the store has no disk, or the disk cannot be queried.
  virtual Space Measure() const { return Space(); }
};

}  // namespace muster::store

#endif  // MUSTER_COORDINATOR_STORE_STORE_H_
