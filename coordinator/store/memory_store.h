// A store without persistence (--store=memory): for tests and short-lived coordinators.
#ifndef MUSTER_COORDINATOR_STORE_MEMORY_STORE_H_
#define MUSTER_COORDINATOR_STORE_MEMORY_STORE_H_

#include <cstddef>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "coordinator/store/store.h"

namespace muster::store {

class MemoryStore : public Store {
 public:
  // `capacity_bytes` limits the total size of keys and values: RESOURCE_EXHAUSTED beyond it.
  explicit MemoryStore(size_t capacity_bytes = std::numeric_limits<size_t>::max());

  absl::Status Commit(absl::Span<const Mutation> batch) override;
  absl::StatusOr<std::vector<Record>> Scan(absl::string_view prefix) const override;

 private:
  const size_t capacity_bytes_;
  mutable absl::Mutex mutex_;
  std::map<std::string, std::string, std::less<>> records_ ABSL_GUARDED_BY(mutex_);
  size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace muster::store

#endif  // MUSTER_COORDINATOR_STORE_MEMORY_STORE_H_
