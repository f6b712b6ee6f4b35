// The index of a log by time: FILE.times, beside the log FILE.
//
// A sequence of records of 16 bytes: two little-endian 64-bit integers, an offset in the log and a
// time in microseconds since 1970. A line that starts at offset s was begun at the time of the last
// record whose offset is at most s; a line before the first record has no known time. Each piece of
// output in which a line starts gets one record, however many lines it contains.
//
// Offsets and times never decrease (the time of an earlier record is repeated if the wall clock was
// set back), so both can be found by binary search. A record is written before the bytes that it
// describes, so a reader that has seen a line finds its time. Bytes after the last whole record are
// the remains of a truncated one and are ignored. Records of a dropped part of the log
// (line_times.h) are dropped as well and read as zeros.
#ifndef MUSTER_WORKER_SHIM_LOG_LINE_TIMES_H_
#define MUSTER_WORKER_SHIM_LOG_LINE_TIMES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/files/owned_fd.h"

namespace muster::shim {

// Files whose beginning is dropped when they exceed their limit.
//
// The dropped part becomes a hole: its disk space is freed, and the offsets of all other bytes stay
// the same, so readers and the index of a log remain valid.

// Dropped parts end at multiples of this size, because file systems free whole blocks.
inline constexpr uint64_t kDropUnitBytes = 64 << 10;

// Drops the bytes before `end`, a multiple of kDropUnitBytes. Returns false, with errno set, if the
// file system cannot do this or does not report holes to readers (ext4, XFS, Btrfs and tmpfs can).
bool DropBefore(int fd, uint64_t end);

// Offset of the first byte that was not dropped. A read that began before DropBefore may return
// zeros for the dropped part: call this after the read.
uint64_t FirstKeptOffset(int fd);

inline constexpr std::string_view kLineTimesSuffix = ".times";
inline constexpr size_t kLineTimeBytes = 16;

struct LineTime {
  uint64_t offset = 0;
  int64_t unix_micros = 0;
};

std::string EncodeLineTime(const LineTime& record);
// `bytes` has at least kLineTimeBytes.
LineTime DecodeLineTime(const char* bytes);

// Appends records to an index. A record that cannot be written (disk full) is written with a later
// one; beyond kMaxPendingBytes the newest are dropped, so that their lines have the time of the
// record before. Not thread-safe.
class LineTimesWriter {
 public:
  static constexpr size_t kMaxPendingBytes = 64 << 10;

  LineTimesWriter() = default;
  ~LineTimesWriter() { WritePending(); }
  LineTimesWriter(const LineTimesWriter&) = delete;
  LineTimesWriter& operator=(const LineTimesWriter&) = delete;

  // Opens the index for appending and removes a truncated record. False with errno set; Add then
  // has no effect.
  bool Open(const std::string& path);
  void Add(LineTime record);
  // Drops the records that only lines before `offset` in the log need.
  void DropBefore(uint64_t offset);
  uint64_t kept_bytes() const { return size_bytes_ - dropped_bytes_; }

 private:
  void WritePending();

  OwnedFd file_;
  uint64_t size_bytes_ = 0;     // size of whole records in the file
  uint64_t dropped_bytes_ = 0;  // dropped part of size_bytes_
  int64_t last_unix_micros_ = 0;
  std::string pending_;
};

}  // namespace muster::shim

#endif  // MUSTER_WORKER_SHIM_LOG_LINE_TIMES_H_
