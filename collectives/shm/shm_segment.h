// The shared memory of a group of ranks on one node: one memfd, and what lies where in it.
//
//   control    a RankControl per rank
//   staging    per rank: two small slots, two input chunks, an output chunk
//   mailboxes  a Mailbox per ordered pair of ranks, for Send and Recv
//   heap       what Allocate gives out, mapped piece by piece
//
// The file is sparse: only pages that are touched exist. It has no name, so that nothing is left of
// it when the last process is gone, however that came about.
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

namespace muster::collectives {

// A file descriptor, closed with the object.
class OwnedFd {
 public:
  OwnedFd() = default;
  explicit OwnedFd(int fd) : fd_(fd) {}
  ~OwnedFd();
  OwnedFd(OwnedFd&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  OwnedFd& operator=(OwnedFd&& other) noexcept;

  int get() const { return fd_; }

 private:
  int fd_ = -1;
};

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

// Where a rank's buffer is: in the heap, in the allocation of this index, or in memory of its own.
struct BufferLocation {
  static constexpr uint32_t kPrivate = 0xffffffff;
  uint32_t allocation = kPrivate;
  uint64_t offset = 0;  // in the rank's own part of the allocation
};

// What a rank says of the operation that it has come to.
struct Announcement {
  OperationSignature signature;
  BufferLocation send;
  BufferLocation recv;
};

struct alignas(64) RankControl {
  enum State : uint32_t { kAbsent, kPresent, kLeft, kFailed };

  FutexWord progress;  // one up per step of every collective
  alignas(64) std::atomic<uint32_t> state;
  std::atomic<uint32_t> blamed;  // kFailed: the rank of the job whose loss it was
  // By the parity of the operation: while a slow rank reads one, a fast one may write the next.
  alignas(64) Announcement announcements[2];
};

// A queue of chunks from one rank to another.
struct Mailbox {
  static constexpr uint32_t kChunks = 4;
  static constexpr size_t kChunkBytes = 64 << 10;

  FutexWord written;  // chunks, advanced by the sender
  FutexWord read;     // by the receiver
  alignas(64) uint64_t message_bytes[kChunks];
  alignas(64) std::byte chunks[kChunks][kChunkBytes];
};

class ShmSegment {
 public:
  static constexpr size_t kPageBytes = 4096;
  static constexpr size_t kHugePageBytes = 2 << 20;
  static constexpr size_t kSmallBytes = 64 << 10;
  static constexpr size_t kChunkBytes = 1 << 20;

  // Makes a segment for `size` ranks. RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<ShmSegment>> Create(uint32_t size);
  // Maps the one that another process made. INVALID_ARGUMENT where it is not for `size` ranks.
  static absl::StatusOr<std::unique_ptr<ShmSegment>> Attach(OwnedFd fd, uint32_t size);

  int fd() const { return fd_.get(); }

  RankControl& control(uint32_t rank) const;
  std::byte* small_slot(uint32_t rank, uint32_t parity) const;
  std::byte* input_chunk(uint32_t rank, uint32_t parity) const;
  std::byte* output_chunk(uint32_t rank) const;
  Mailbox& mailbox(uint32_t from, uint32_t to) const;

  // The heap is `heap_bytes()` long from `heap_offset()` in the file.
  uint64_t heap_offset() const;
  uint64_t heap_bytes() const;
  // Both multiples of a page. Aligned for huge pages where the offset is.
  absl::StatusOr<std::unique_ptr<Mapping>> Map(uint64_t offset, size_t size_bytes) const;

  // While a process holds `rank`, Alive(rank) is true for every other opening of the segment; the
  // kernel lets go when the process dies. UNAVAILABLE where somebody else holds it.
  absl::Status HoldRank(uint32_t rank);
  bool Alive(uint32_t rank) const;

 private:
  ShmSegment(OwnedFd fd, uint32_t size) : fd_(std::move(fd)), size_(size) {}
  absl::Status MapFixedParts();

  OwnedFd fd_;
  const uint32_t size_;
  OwnedFd lock_fd_;  // an opening of our own: locks belong to openings, and fd_ is shared
  std::unique_ptr<Mapping> fixed_;
};

}  // namespace muster::collectives

#endif  // MUSTER_COLLECTIVES_SHM_SHM_SEGMENT_H_
