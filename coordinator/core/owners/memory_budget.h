// Accounts for the memory that the jobs of each owner use in the coordinator, so that no owner can
// use all of it.
//
// Not thread-safe.
#ifndef MUSTER_COORDINATOR_CORE_OWNERS_MEMORY_BUDGET_H_
#define MUSTER_COORDINATOR_CORE_OWNERS_MEMORY_BUDGET_H_

#include <cstddef>
#include <map>
#include <string>

#include "absl/status/status.h"

namespace muster::core {

class MemoryBudget {
 public:
  // `limit`: bytes of all owners. One owner may use half of it.
  explicit MemoryBudget(size_t limit) : limit_(limit) {}

  // RESOURCE_EXHAUSTED if the owner's bytes, or those of all owners, would exceed their limit with
  // `bytes` more.
  absl::Status Check(const std::string& owner, size_t bytes) const;
  // Whether the owner's own limit allows `bytes` more.
  bool OwnerHasRoom(const std::string& owner, size_t bytes) const;
  // Whether a limit is exceeded by more than an eighth. A little is usual: what jobs that run add
  // is not refused.
  bool IsFarBeyond(const std::string& owner) const;

  void Add(const std::string& owner, size_t bytes);
  void Remove(const std::string& owner, size_t bytes);
  size_t used() const { return used_; }
  // Owners that use memory.
  const std::map<std::string, size_t>& by_owner() const { return by_owner_; }

 private:
  size_t UsedBy(const std::string& owner) const;

  const size_t limit_;
  size_t used_ = 0;
  std::map<std::string, size_t> by_owner_;
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_OWNERS_MEMORY_BUDGET_H_
