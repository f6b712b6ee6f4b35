// Shadow state of a range of memory: which bytes are initialised, and which threads accessed them.
#ifndef MUSTER_TESTS_GPU_PTX_SHADOW_H_
#define MUSTER_TESTS_GPU_PTX_SHADOW_H_

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

namespace muster::ptx {

// A phase is the execution of one block between two barriers. Phases are numbered in the order in
// which they run. A stamp identifies the access of a thread in a phase:
//   bits 0-9 thread, bit 10 kManyThreads, bit 11 kOtherBlocks, bits 12-63 phase.
inline constexpr uint64_t kThreadMask = (1 << 10) - 1;
inline constexpr uint64_t kManyThreads = 1 << 10;  // several threads read in the phase
inline constexpr uint64_t kOtherBlocks = 1 << 11;  // blocks before this one read in the launch
constexpr uint64_t PhaseStamp(uint64_t phase) { return phase << 12; }
// The stamp of writes by the host, which is before all phases.
inline constexpr uint64_t kHostStamp = 1;

// Who accesses memory.
struct Accessor {
  uint64_t launch_begin;  // stamp of the launch's first phase
  uint64_t block_begin;   // stamp of the block's first phase
  uint64_t phase_begin;   // stamp of the current phase
  uint64_t self;          // stamp of the thread in the current phase
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
  AccessFault Write(size_t offset, size_t bytes, const Accessor& accessor);
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
    const uint64_t written = cell->written;
    if (written != accessor.self &&
        (written >= accessor.phase_begin ||
         (written < accessor.block_begin && written >= accessor.launch_begin))) {
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

inline AccessFault Shadow::Write(size_t offset, size_t bytes, const Accessor& accessor) {
  if (bytes >> shift_ == 0) Refine(bytes);
  Cell* cell = &cells_[offset >> shift_];
  for (Cell* const end = cell + (bytes >> shift_); cell != end; ++cell) {
    const uint64_t written = cell->written;
    if (written != accessor.self &&
        (written >= accessor.phase_begin ||
         (written < accessor.block_begin && written >= accessor.launch_begin))) {
      other_ = written;
      return AccessFault::kRaceWithWrite;
    }
    const uint64_t read = cell->read;
    if (read >= accessor.launch_begin && read != accessor.self) {
      // A read by this block before the last barrier is ordered with the write; one by another
      // block never is.
      const bool earlier_phase = read >= accessor.block_begin && read < accessor.phase_begin;
      if (!earlier_phase || (read & kOtherBlocks) != 0) {
        other_ = read;
        return AccessFault::kRaceWithRead;
      }
    }
    cell->written = accessor.self;
  }
  return AccessFault::kNone;
}

}  // namespace muster::ptx

#endif  // MUSTER_TESTS_GPU_PTX_SHADOW_H_
