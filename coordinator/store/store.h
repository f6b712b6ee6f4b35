// Where the coordinator keeps its records: keys and serialised messages of
// proto/muster/v1/store.proto.
//
// The interface is what an embedded database and a replicated one (etcd) both do well: an atomic
// batch of puts and deletes, and a scan. Decisions live in coordinator/core; a store only keeps
// what it is given.
#ifndef MUSTER_COORDINATOR_STORE_STORE_H_
#define MUSTER_COORDINATOR_STORE_STORE_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace muster::store {

// One write: a value puts it, none deletes the key (a missing key is no error).
struct Mutation {
  std::string key;
  std::optional<std::string> value;
};

struct Record {
  std::string key;
  std::string value;
};

// Thread-safe: Scan may run beside Commit, which callers give one at a time.
class Store {
 public:
  virtual ~Store() = default;

  // All of the batch or nothing; when it returns OK the batch survives the loss of power. Later
  // mutations of a key in one batch win. Any error leaves the state unknown to the caller, who must
  // end and read it again. Errors: RESOURCE_EXHAUSTED (disk full), INTERNAL, FAILED_PRECONDITION
  // (fenced: somebody else leads).
  virtual absl::Status Commit(absl::Span<const Mutation> batch) = 0;

  // Every record whose key begins with prefix, in byte order of the keys.
  // Errors: DATA_LOSS (damaged), INTERNAL.
  virtual absl::StatusOr<std::vector<Record>> Scan(absl::string_view prefix) const = 0;
};

}  // namespace muster::store

#endif  // MUSTER_COORDINATOR_STORE_STORE_H_
