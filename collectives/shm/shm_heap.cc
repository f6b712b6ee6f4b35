#include "collectives/shm/shm_heap.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14
#endif

namespace muster::collectives {

class ShmHeap::Piece final : public Allocation {
 public:
  Piece(std::shared_ptr<ShmHeap> heap, size_t index, void* data, size_t size_bytes)
      : heap_(std::move(heap)), index_(index), data_(data), size_bytes_(size_bytes) {}
  ~Piece() override {
    if (!kept_) heap_->Free(index_);
  }

  void* data() override { return data_; }
  size_t size_bytes() const override { return size_bytes_; }
  void KeepForPeers() override { kept_ = true; }

 private:
  const std::shared_ptr<ShmHeap> heap_;
  const size_t index_;
  void* const data_;
  const size_t size_bytes_;
  bool kept_ = false;
};

ShmHeap::ShmHeap(std::shared_ptr<const ShmSegment> segment, uint32_t rank, uint32_t size)
    : segment_(std::move(segment)), rank_(rank), size_(size), end_(segment_->heap_offset()) {}

absl::StatusOr<std::unique_ptr<Allocation>> ShmHeap::Allocate(size_t size_bytes) {
  const uint64_t heap_end = segment_->heap_offset() + segment_->heap_bytes();
  const size_t unit = size_bytes >= ShmSegment::kHugePageBytes ? ShmSegment::kHugePageBytes
                                                               : ShmSegment::kPageBytes;
  absl::MutexLock lock(&mutex_);
  if (size_bytes > (heap_end - end_) / size_ - 2 * ShmSegment::kHugePageBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the group's shared memory has no room for ", size_bytes, " bytes per rank"));
  }
  Range range;
  range.file_offset = (end_ + unit - 1) / unit * unit;
  range.part_bytes = (std::max<size_t>(size_bytes, 1) + unit - 1) / unit * unit;
  const size_t all_bytes = range.part_bytes * size_;
  // Advanced even if the following steps fail: the peers' offsets have advanced, too.
  end_ = range.file_offset + all_bytes;
  ranges_.emplace_back();
  ASSIGN_OR_RETURN(range.mapping, segment_->Map(range.file_offset, all_bytes));
  madvise(range.mapping->data(), all_bytes, MADV_HUGEPAGE);  // if the kernel supports them
  RETURN_IF_ERROR(Populate(range));
  void* const data = range.mapping->data() + rank_ * range.part_bytes;
  ranges_.back() = std::move(range);
  return {std::make_unique<Piece>(shared_from_this(), ranges_.size() - 1, data, size_bytes)};
}

absl::Status ShmHeap::Populate(const Range& range) const {
  void* const part = range.mapping->data() + rank_ * range.part_bytes;
  if (madvise(part, range.part_bytes, MADV_POPULATE_WRITE) == 0) return absl::OkStatus();
  int error = errno;
  if (error == EINVAL) {  // an older kernel
    const auto offset = static_cast<off_t>(range.file_offset + rank_ * range.part_bytes);
    if (fallocate(segment_->fd(), 0, offset, static_cast<off_t>(range.part_bytes)) == 0) {
      return absl::OkStatus();
    }
    error = errno;
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      ErrnoStatus(error, absl::StrCat(range.part_bytes, " bytes of shared memory")).message()));
}

void ShmHeap::Free(size_t index) {
  absl::MutexLock lock(&mutex_);
  Range& range = ranges_[index];
  fallocate(segment_->fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
            static_cast<off_t>(range.file_offset + rank_ * range.part_bytes),
            static_cast<off_t>(range.part_bytes));
  range.freed = true;
}

BufferLocation ShmHeap::Locate(const void* data, size_t size_bytes) const {
  const auto* const begin = static_cast<const std::byte*>(data);
  absl::MutexLock lock(&mutex_);
  for (size_t i = 0; i < ranges_.size(); ++i) {
    const Range& range = ranges_[i];
    if (range.mapping == nullptr || range.freed) continue;
    const std::byte* const part = range.mapping->data() + rank_ * range.part_bytes;
    if (begin < part || begin + size_bytes > part + range.part_bytes) continue;
    BufferLocation location;
    location.allocation = static_cast<uint32_t>(i);
    location.offset = static_cast<uint64_t>(begin - part);
    return location;
  }
  return BufferLocation();
}

std::byte* ShmHeap::Resolve(uint32_t rank, const BufferLocation& location,
                            size_t size_bytes) const {
  absl::MutexLock lock(&mutex_);
  if (location.allocation >= ranges_.size()) return nullptr;
  const Range& range = ranges_[location.allocation];
  if (range.mapping == nullptr || location.offset > range.part_bytes ||
      size_bytes > range.part_bytes - location.offset) {
    return nullptr;
  }
  return range.mapping->data() + rank * range.part_bytes + location.offset;
}

}  // namespace muster::collectives
