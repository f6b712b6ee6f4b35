// Allocates buffers inside a group's shared segment, which every rank of the group reads and writes
// directly.
#ifndef MUSTER_COLLECTIVES_SHM_SHM_HEAP_H_
#define MUSTER_COLLECTIVES_SHM_SHM_HEAP_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "collectives/communicator.h"
#include "collectives/shm/shm_segment.h"

namespace muster::collectives {

// The n-th allocations of all ranks form one range of the file with a part per rank, so ranks need
// no message to agree on it. File offsets are not reused; the memory is freed. Thread-safe.
class ShmHeap : public std::enable_shared_from_this<ShmHeap> {
 public:
  ShmHeap(std::shared_ptr<const ShmSegment> segment, uint32_t rank, uint32_t size);

  // Allocates zeroed memory whose pages exist: RESOURCE_EXHAUSTED is returned here, instead of a
  // signal later. The Allocation shares ownership of the heap.
  absl::StatusOr<std::unique_ptr<Allocation>> Allocate(size_t size_bytes);

  // Returns the location of a buffer of this rank.
  BufferLocation Locate(const void* data, size_t size_bytes) const;

  // Returns the address of a peer's buffer in this process, or null if this process cannot reach
  // it.
  std::byte* Resolve(uint32_t rank, const BufferLocation& location, size_t size_bytes) const;

 private:
  class Piece;
  struct Range {
    uint64_t file_offset = 0;
    size_t part_bytes = 0;             // per rank
    bool freed = false;                // this rank's part is freed; the peers may still use theirs
    std::unique_ptr<Mapping> mapping;  // null if Allocate failed
  };

  absl::Status Populate(const Range& range) const;
  void Free(size_t index);

  const std::shared_ptr<const ShmSegment> segment_;
  const uint32_t rank_;
  const uint32_t size_;

  mutable absl::Mutex mutex_;
  uint64_t end_ ABSL_GUARDED_BY(mutex_);  // file offset of the end of all allocations
  std::vector<Range> ranges_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster::collectives

#endif  // MUSTER_COLLECTIVES_SHM_SHM_HEAP_H_
