// Shadow state of a range of memory: which bytes are initialised, and which threads accessed them.
#ifndef MUSTER_TESTS_GPU_PTX_SHADOW_H_
#define MUSTER_TESTS_GPU_PTX_SHADOW_H_

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "tests/gpu/ptx/block_order.h"

namespace muster::ptx {

// A phase is the execution of one block between two barriers. Phases are numbered in the order in
// which they run. A stamp identifies the access of a thread in a phase:
//   bits 0-9 thread, bit 10 kManyThreads (reads) or kAtomic (writes), bit 11 kOtherBlocks,
//   bits 12-63 phase.
inline constexpr uint64_t kThreadMask = (1 << 10) - 1;
inline constexpr uint64_t kManyThreads = 1 << 10;  // several threads read in the phase
inline constexpr uint64_t kAtomic = 1 << 10;       // the write was an atomic operation
inline constexpr uint64_t kOtherBlocks = 1 << 11;  // blocks before this one read in the launch
constexpr uint64_t PhaseStamp(uint64_t phase) { return phase << 12; }
// The stamp of writes by the host, which is before all phases.
inline constexpr uint64_t kHostStamp = 1;

// Who accesses memory.
struct Accessor {
  uint64_t launch_begin;    // stamp of the launch's first phase
  uint64_t block_begin;     // stamp of the block's first phase
  uint64_t phase_begin;     // stamp of the current phase
  uint64_t self;            // stamp of the thread in the current phase
  const BlockOrder* order;  // null: no accesses of different blocks are ordered
};

enum class AccessFault {
  kNone,
  kUninitialized,
  kRaceWithWrite,  // another thread's write is not ordered with this access
  kRaceWithRead,
};

// Not thread-safe.
class Shadow {
 public:
  // State of `bytes` uninitialised bytes.
  explicit Shadow(size_t bytes) : bytes_(bytes), cells_(Allocate(bytes, shift_)) {}

  // Check an access to naturally aligned bytes in range, and record it if there is no fault. Race
  // detection is exact for fault-free histories of phases that run one after the other.
  AccessFault Read(size_t offset, size_t bytes, const Accessor& accessor) {
    return ReadSince(1, offset, bytes, accessor);
  }
  // As Read, of memory that is uninitialised when a block begins.
  AccessFault ReadInBlock(size_t offset, size_t bytes, const Accessor& accessor) {
    return ReadSince(accessor.block_begin, offset, bytes, accessor);
  }
  AccessFault Write(size_t offset, size_t bytes, const Accessor& accessor) {
    return WriteAs(0, offset, bytes, accessor);
  }
  // Reads and writes; atomic operations do not race with each other.
  AccessFault Atomic(size_t offset, size_t bytes, const Accessor& accessor) {
    if (FirstUninitialized(offset, bytes) != offset + bytes) return AccessFault::kUninitialized;
    return WriteAs(kAtomic, offset, bytes, accessor);
  }
  // The stamp of the other thread's access in the last race that Read or Write returned.
  uint64_t other() const { return other_; }

  // Accesses by the host, to any range.
  void MarkInitialized(size_t offset, size_t bytes);
  // The first uninitialised byte of the range, or its end.
  size_t FirstUninitialized(size_t offset, size_t bytes) const;

 private:
  struct Cell {
    uint64_t written = 0;  // stamp of the last write; 0 if uninitialised
    uint64_t read = 0;     // stamp of the last read
  };
  struct Release {
    void operator()(Cell* cells) const { std::free(cells); }
  };
  using Cells = std::unique_ptr<Cell[], Release>;

  // Reads cells that were written at the stamp `initialized` or later.
  AccessFault ReadSince(uint64_t initialized, size_t offset, size_t bytes,
                        const Accessor& accessor);
  // Writes, atomically if `atomic` is kAtomic and not 0.
  AccessFault WriteAs(uint64_t atomic, size_t offset, size_t bytes, const Accessor& accessor);
  // Whether an access with this stamp comes before those of the accessor.
  static bool IsBefore(uint64_t stamp, const Accessor& accessor) {
    if (stamp < accessor.launch_begin || stamp == accessor.self) return true;
    if (stamp >= accessor.block_begin) return stamp < accessor.phase_begin;
    return accessor.order != nullptr && accessor.order->IsOrdered(stamp, accessor);
  }
  // The system provides pages of zeroed memory only once they are written to.
  static Cells Allocate(size_t bytes, int shift);
  // Makes a cell cover at most `bytes` bytes, a power of two.
  void Refine(size_t bytes);

  size_t bytes_;
  int shift_ = 2;  // a cell covers 2^shift_ bytes
  Cells cells_;
  uint64_t other_ = 0;
};

inline AccessFault Shadow::ReadSince(uint64_t initialized, size_t offset, size_t bytes,
                                     const Accessor& accessor) {
  if (bytes >> shift_ == 0) Refine(bytes);
  Cell* cell = &cells_[offset >> shift_];
  for (Cell* const end = cell + (bytes >> shift_); cell != end; ++cell) {
    const uint64_t written = cell->written & ~kAtomic;
    if (!IsBefore(written, accessor)) [[unlikely]] {
      other_ = written;
      return AccessFault::kRaceWithWrite;
    }
    if (written < initialized) return AccessFault::kUninitialized;
    const uint64_t read = cell->read;
    if (read < accessor.launch_begin) {
      cell->read = accessor.self;
    } else if (read >= accessor.phase_begin) {
      if (((read ^ accessor.self) & kThreadMask) != 0) cell->read = read | kManyThreads;
    } else if (read >= accessor.block_begin) {
      cell->read = accessor.self | (read & kOtherBlocks);
    } else {
      cell->read = accessor.self | kOtherBlocks;
    }
  }
  return AccessFault::kNone;
}

inline AccessFault Shadow::WriteAs(uint64_t atomic, size_t offset, size_t bytes,
                                   const Accessor& accessor) {
  if (bytes >> shift_ == 0) Refine(bytes);
  Cell* cell = &cells_[offset >> shift_];
  for (Cell* const end = cell + (bytes >> shift_); cell != end; ++cell) {
    const uint64_t written = cell->written;
    const bool both_atomic = (written & atomic) != 0;
    if (!both_atomic && !IsBefore(written & ~kAtomic, accessor)) [[unlikely]] {
      other_ = written & ~kAtomic;
      return AccessFault::kRaceWithWrite;
    }
    const uint64_t read = cell->read;
    if (read >= accessor.launch_begin && read != accessor.self) {
      // Several threads read in the phase, or several blocks, of which only the last is known.
      const bool others = (read & kOtherBlocks) != 0 ||
                          ((read & kManyThreads) != 0 && read >= accessor.phase_begin);
      if (others || !IsBefore(read & ~kManyThreads, accessor)) {
        other_ = read;
        return AccessFault::kRaceWithRead;
      }
    }
    cell->written = accessor.self | atomic;
  }
  return AccessFault::kNone;
}

}  // namespace muster::ptx

#endif  // MUSTER_TESTS_GPU_PTX_SHADOW_H_
