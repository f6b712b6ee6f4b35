// The shared memory of a group of ranks on one node: one memfd with this layout.
//
//   control    a RankControl per rank
//   staging    per rank: two small slots, two input chunks, an output chunk
//   mailboxes  a Mailbox per ordered pair of ranks, for Send and Recv
//   heap       what Allocate gives out, mapped piece by piece
//
// The file is sparse: only pages that are touched are allocated. It has no name, so the kernel
// frees it when the last process has ended, even after a crash.
#ifndef MUSTER_COLLECTIVES_SHM_SHM_SEGMENT_H_
#define MUSTER_COLLECTIVES_SHM_SHM_SEGMENT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collectives/operation.h"
#include "collectives/shm/futex_word.h"
#include "common/files/owned_fd.h"

namespace muster::collectives {

// Memory mapped from a file, unmapped with the object.
class Mapping {
 public:
  Mapping(void* data, size_t size_bytes) : data_(data), size_bytes_(size_bytes) {}
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  std::byte* data() const { return static_cast<std::byte*>(data_); }
  size_t size_bytes() const { return size_bytes_; }

 private:
  void* const data_;
  const size_t size_bytes_;
};

// Location of a rank's buffer: an offset in the heap allocation of this index, or private memory.
struct BufferLocation {
  static constexpr uint32_t kPrivate = 0xffffffff;
  uint32_t allocation = kPrivate;
  uint64_t offset = 0;  // in the rank's part of the allocation
};

// A rank's description of its current operation.
struct Announcement {
  OperationSignature signature;
  BufferLocation send;
  BufferLocation recv;
};

struct alignas(64) RankControl {
  enum State : uint32_t { kAbsent, kPresent, kLeft, kFailed };

  FutexWord progress;  // incremented at each step of every collective
  alignas(64) std::atomic<uint32_t> state;
  std::atomic<uint32_t> blamed;  // kFailed: the job rank whose loss was the cause
  // Indexed by the operation's parity: while a slow rank reads one, a fast rank may write the next.
  alignas(64) Announcement announcements[2];
};

// A queue of chunks from one rank to another.
struct Mailbox {
  static constexpr uint32_t kChunks = 4;
  static constexpr size_t kChunkBytes = 64 << 10;

  FutexWord written;  // chunks written; advanced by the sender
  FutexWord read;     // chunks read; advanced by the receiver
  alignas(64) uint64_t message_bytes[kChunks];
  alignas(64) std::byte chunks[kChunks][kChunkBytes];
};

class ShmSegment {
 public:
  static constexpr size_t kPageBytes = 4096;
  static constexpr size_t kHugePageBytes = 2 << 20;
  static constexpr size_t kSmallBytes = 64 << 10;
  static constexpr size_t kChunkBytes = 1 << 20;

  // Creates a segment for `size` ranks. RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<ShmSegment>> Create(uint32_t size);
  // Maps a segment created by another process. INVALID_ARGUMENT if it is not for `size` ranks.
  static absl::StatusOr<std::unique_ptr<ShmSegment>> Attach(OwnedFd fd, uint32_t size);

  int fd() const { return fd_.get(); }

  RankControl& control(uint32_t rank) const;
  std::byte* small_slot(uint32_t rank, uint32_t parity) const;
  std::byte* input_chunk(uint32_t rank, uint32_t parity) const;
  std::byte* output_chunk(uint32_t rank) const;
  Mailbox& mailbox(uint32_t from, uint32_t to) const;

  // The heap occupies `heap_bytes()` from `heap_offset()` in the file.
  uint64_t heap_offset() const;
  uint64_t heap_bytes() const;
  // Maps a range of the file; both arguments are multiples of the page size. The mapping is aligned
  // for huge pages if the offset is.
  absl::StatusOr<std::unique_ptr<Mapping>> Map(uint64_t offset, size_t size_bytes) const;

  // Claims `rank` for this process: while it is held, Alive(rank) returns true for every other open
  // file description of the segment; the kernel releases it when the process dies. UNAVAILABLE if
  // another process holds it.
  absl::Status HoldRank(uint32_t rank);
  bool Alive(uint32_t rank) const;

 private:
  ShmSegment(OwnedFd fd, uint32_t size) : fd_(std::move(fd)), size_(size) {}
  absl::Status MapFixedParts();

  OwnedFd fd_;
  const uint32_t size_;
  OwnedFd lock_fd_;  // own open file description: locks belong to it, and fd_'s is shared
  std::unique_ptr<Mapping> fixed_;
};

}  // namespace muster::collectives

#endif  // MUSTER_COLLECTIVES_SHM_SHM_SEGMENT_H_
