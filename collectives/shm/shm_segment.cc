#include "collectives/shm/shm_segment.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace muster::collectives {
namespace {

constexpr uint64_t kHeapBytes = uint64_t{1} << 40;  // address space in the file, not memory
constexpr size_t kPageBytes = ShmSegment::kPageBytes;

struct alignas(kPageBytes) Staging {
  std::byte small[2][ShmSegment::kSmallBytes];
  std::byte input[2][ShmSegment::kChunkBytes];
  std::byte output[ShmSegment::kChunkBytes];
};

constexpr uint64_t RoundUp(uint64_t value, uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

uint64_t StagingOffset(uint32_t size) { return RoundUp(size * sizeof(RankControl), kPageBytes); }

uint64_t MailboxOffset(uint32_t size) {
  return StagingOffset(size) + uint64_t{size} * sizeof(Staging);
}

uint64_t HeapOffset(uint32_t size) {
  return RoundUp(MailboxOffset(size) + uint64_t{size} * size * sizeof(Mailbox),
                 ShmSegment::kHugePageBytes);
}

struct flock RankLock(uint32_t rank) {
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = rank;
  lock.l_len = 1;
  return lock;
}

absl::Status MappingError(size_t size_bytes) {
  return absl::ResourceExhaustedError(absl::StrCat(
      "mapping ", size_bytes, " bytes of a segment: ", ErrnoStatus(errno, "mmap").message()));
}

}  // namespace

Mapping::~Mapping() { munmap(data_, size_bytes_); }

absl::StatusOr<std::unique_ptr<ShmSegment>> ShmSegment::Create(uint32_t size) {
  OwnedFd fd(memfd_create("muster-collectives", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (fd.get() < 0) return ErrnoStatus(errno, "memfd_create");
  if (ftruncate(fd.get(), static_cast<off_t>(HeapOffset(size) + kHeapBytes)) != 0) {
    return ErrnoStatus(errno, "ftruncate of a memfd");
  }
  // Seal the size, so that no process can truncate memory that others have mapped.
  if (fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return ErrnoStatus(errno, "sealing a memfd");
  }
  return Attach(std::move(fd), size);
}

absl::StatusOr<std::unique_ptr<ShmSegment>> ShmSegment::Attach(OwnedFd fd, uint32_t size) {
  struct stat status = {};
  if (fstat(fd.get(), &status) != 0) return ErrnoStatus(errno, "fstat of a memfd");
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 ||
      static_cast<uint64_t>(status.st_size) != HeapOffset(size) + kHeapBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the received shared memory segment was not created for ", size, " ranks"));
  }
  std::unique_ptr<ShmSegment> segment(new ShmSegment(std::move(fd), size));
  RETURN_IF_ERROR(segment->MapFixedParts());
  return {std::move(segment)};
}

absl::Status ShmSegment::MapFixedParts() {
  ASSIGN_OR_RETURN(fixed_, Map(0, HeapOffset(size_)));
  const std::string path = absl::StrCat("/proc/self/fd/", fd_.get());
  lock_fd_ = OwnedFd(open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (lock_fd_.get() < 0) return ErrnoStatus(errno, absl::StrCat("open ", path));
  return absl::OkStatus();
}

RankControl& ShmSegment::control(uint32_t rank) const {
  return reinterpret_cast<RankControl*>(fixed_->data())[rank];
}

static Staging& StagingOf(const Mapping& fixed, uint32_t size, uint32_t rank) {
  return reinterpret_cast<Staging*>(fixed.data() + StagingOffset(size))[rank];
}

std::byte* ShmSegment::small_slot(uint32_t rank, uint32_t parity) const {
  return StagingOf(*fixed_, size_, rank).small[parity & 1];
}

std::byte* ShmSegment::input_chunk(uint32_t rank, uint32_t parity) const {
  return StagingOf(*fixed_, size_, rank).input[parity & 1];
}

std::byte* ShmSegment::output_chunk(uint32_t rank) const {
  return StagingOf(*fixed_, size_, rank).output;
}

Mailbox& ShmSegment::mailbox(uint32_t from, uint32_t to) const {
  return reinterpret_cast<Mailbox*>(fixed_->data() + MailboxOffset(size_))[from * size_ + to];
}

uint64_t ShmSegment::heap_offset() const { return HeapOffset(size_); }

uint64_t ShmSegment::heap_bytes() const { return kHeapBytes; }

absl::StatusOr<std::unique_ptr<Mapping>> ShmSegment::Map(uint64_t offset, size_t size_bytes) const {
  // Reserve an address range first, with room for alignment.
  const size_t reserved_bytes = size_bytes + kHugePageBytes;
  void* const reserved =
      mmap(nullptr, reserved_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return MappingError(size_bytes);
  const auto begin = reinterpret_cast<uintptr_t>(reserved);
  const uintptr_t aligned = RoundUp(begin, kHugePageBytes);
  const uintptr_t end = aligned + size_bytes;
  if (aligned > begin) munmap(reserved, aligned - begin);
  munmap(reinterpret_cast<void*>(end), begin + reserved_bytes - end);
  void* const data =
      mmap(reinterpret_cast<void*>(aligned), size_bytes, PROT_READ | PROT_WRITE,
           MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd_.get(), static_cast<off_t>(offset));
  if (data == MAP_FAILED) {
    const absl::Status status = MappingError(size_bytes);
    munmap(reinterpret_cast<void*>(aligned), size_bytes);
    return status;
  }
  return {std::make_unique<Mapping>(data, size_bytes)};
}

absl::Status ShmSegment::HoldRank(uint32_t rank) {
  struct flock lock = RankLock(rank);
  if (fcntl(lock_fd_.get(), F_OFD_SETLK, &lock) != 0) {
    if (errno == EAGAIN || errno == EACCES) {
      return absl::UnavailableError(
          absl::StrCat("another process already holds rank ", rank, " of the group"));
    }
    return ErrnoStatus(errno, "F_OFD_SETLK");
  }
  return absl::OkStatus();
}

bool ShmSegment::Alive(uint32_t rank) const {
  struct flock lock = RankLock(rank);
  return fcntl(lock_fd_.get(), F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

}  // namespace muster::collectives
