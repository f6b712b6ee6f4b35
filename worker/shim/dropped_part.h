// Files whose beginning is dropped when they exceed their limit.
//
// The dropped part becomes a hole: its disk space is freed, and the offsets of all other bytes stay
// the same, so readers and the index of a log remain valid.
#ifndef MUSTER_WORKER_SHIM_DROPPED_PART_H_
#define MUSTER_WORKER_SHIM_DROPPED_PART_H_

#include <cstdint>

namespace muster::shim {

// Dropped parts end at multiples of this size, because file systems free whole blocks.
inline constexpr uint64_t kDropUnitBytes = 64 << 10;

// Drops the bytes before `end`, a multiple of kDropUnitBytes. Returns false, with errno set, if the
// file system cannot do this or does not report holes to readers (ext4, XFS, Btrfs and tmpfs can).
bool DropBefore(int fd, uint64_t end);

// Offset of the first byte that was not dropped. A read that began before DropBefore may return
// zeros for the dropped part: call this after the read.
uint64_t FirstKeptOffset(int fd);

}  // namespace muster::shim

#endif  // MUSTER_WORKER_SHIM_DROPPED_PART_H_
