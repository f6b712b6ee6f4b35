// The key-value store of one generation, through which its ranks exchange addresses and unique ids.
//
// Nodes wait for keys, not ranks: a worker asks once for all of its ranks. The store ends with the
// generation, so no key reaches another generation. In memory only: workers repeat their ranks'
// puts when they open a session.
#ifndef MUSTER_COORDINATOR_CORE_RENDEZVOUS_KEYS_H_
#define MUSTER_COORDINATOR_CORE_RENDEZVOUS_KEYS_H_

#include <cstddef>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/ids.h"
#include "common/rendezvous/write_once_store.h"
#include "coordinator/core/owners/memory_budget.h"

namespace muster::core {

class KeyTable {
 public:
  // Charges `owner`, that of the job, for its keys and values until it is destroyed. `memory` must
  // outlive it.
  KeyTable(MemoryBudget& memory, std::string owner) : memory_(memory), owner_(std::move(owner)) {}
  ~KeyTable() { memory_.Remove(owner_, bytes_); }
  KeyTable(const KeyTable&) = delete;
  KeyTable& operator=(const KeyTable&) = delete;

  // Returns the nodes that waited for the key. OK if the key already holds this value; errors of
  // WriteOnceStore::Put, and RESOURCE_EXHAUSTED as MemoryBudget::Check.
  absl::StatusOr<std::vector<NodeName>> Put(absl::string_view key, absl::string_view value);

  // Returns the value, or null after recording that `node` waits for it. Errors: INVALID_ARGUMENT
  // as WriteOnceStore::CheckKey, RESOURCE_EXHAUSTED (nodes wait for too many keys, or as
  // MemoryBudget::Check).
  absl::StatusOr<const std::string*> Get(absl::string_view key, const NodeName& node);

  // The most memory that Put or Get of the key needs.
  static size_t MostBytes(absl::string_view key, absl::string_view value);
  // Memory of all keys, values and waiting nodes, about.
  size_t bytes() const { return bytes_; }

 private:
  void Add(size_t bytes);

  MemoryBudget& memory_;
  const std::string owner_;
  size_t bytes_ = 0;
  WriteOnceStore values_;
  std::map<std::string, std::set<NodeName>, std::less<>> waiters_;
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_RENDEZVOUS_KEYS_H_
