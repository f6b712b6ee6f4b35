// Buffers inside a group's shared segment, which every rank of the group reads and writes directly.
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

// The n-th allocation of every rank is one range of the file, with a part for each rank: no message
// is needed to agree on it. Addresses in the file are not used again; the memory is given back.
// Thread-safe.
class ShmHeap : public std::enable_shared_from_this<ShmHeap> {
 public:
  ShmHeap(std::shared_ptr<const ShmSegment> segment, uint32_t rank, uint32_t size);

  // Zeroed memory that exists: RESOURCE_EXHAUSTED comes from here, not later as a signal. The
  // Allocation keeps what it needs of the heap.
  absl::StatusOr<std::unique_ptr<Allocation>> Allocate(size_t size_bytes);

  // Where a buffer of this rank lies.
  BufferLocation Locate(const void* data, size_t size_bytes) const;

  // Where a peer's buffer is in this process; null where this process cannot reach it.
  std::byte* Resolve(uint32_t rank, const BufferLocation& location, size_t size_bytes) const;

 private:
  class Piece;
  struct Range {
    uint64_t file_offset = 0;
    size_t part_bytes = 0;             // of each rank
    bool freed = false;                // this rank's part; the peers may still use theirs
    std::unique_ptr<Mapping> mapping;  // null where Allocate failed
  };

  absl::Status Populate(const Range& range) const;
  void Free(size_t index);

  const std::shared_ptr<const ShmSegment> segment_;
  const uint32_t rank_;
  const uint32_t size_;

  mutable absl::Mutex mutex_;
  uint64_t end_ ABSL_GUARDED_BY(mutex_);  // of what is given out, in the file
  std::vector<Range> ranges_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster::collectives

#endif  // MUSTER_COLLECTIVES_SHM_SHM_HEAP_H_
