#include "worker/shim/log/line_times.h"

#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace muster::shim {
namespace {

void AppendLittleEndian(uint64_t value, std::string& out) {
  for (int shift = 0; shift < 64; shift += 8) out += static_cast<char>(value >> shift & 0xFF);
}

uint64_t LittleEndian(const char* bytes) {
  uint64_t value = 0;
  for (int i = 7; i >= 0; --i) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

}  // namespace

bool DropBefore(int fd, uint64_t end) {
  if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(end)) != 0) {
    return false;
  }
  if (FirstKeptOffset(fd) == end) return true;
  errno = EOPNOTSUPP;
  return false;
}

uint64_t FirstKeptOffset(int fd) {
  const off_t first = lseek(fd, 0, SEEK_DATA);
  return first < 0 ? 0 : static_cast<uint64_t>(first);
}

std::string EncodeLineTime(const LineTime& record) {
  std::string bytes;
  AppendLittleEndian(record.offset, bytes);
  AppendLittleEndian(static_cast<uint64_t>(record.unix_micros), bytes);
  return bytes;
}

LineTime DecodeLineTime(const char* bytes) {
  return {LittleEndian(bytes), static_cast<int64_t>(LittleEndian(bytes + 8))};
}

bool LineTimesWriter::Open(const std::string& path) {
  file_ = OwnedFd(open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0640));
  if (file_.get() < 0) return false;
  const off_t size = std::max<off_t>(0, lseek(file_.get(), 0, SEEK_END));
  size_bytes_ = static_cast<uint64_t>(size) / kLineTimeBytes * kLineTimeBytes;
  if (static_cast<uint64_t>(size) > size_bytes_ && ftruncate(file_.get(), size_bytes_) != 0)
    return false;
  char last[kLineTimeBytes];
  if (size_bytes_ > 0 &&
      pread(file_.get(), last, sizeof(last), size_bytes_ - kLineTimeBytes) == sizeof(last)) {
    last_unix_micros_ = DecodeLineTime(last).unix_micros;
  }
  if (size_bytes_ > 0) dropped_bytes_ = FirstKeptOffset(file_.get());
  return true;
}

void LineTimesWriter::Add(LineTime record) {
  if (file_.get() < 0) return;
  last_unix_micros_ = record.unix_micros = std::max(record.unix_micros, last_unix_micros_);
  if (pending_.size() < kMaxPendingBytes) pending_ += EncodeLineTime(record);
  WritePending();
}

void LineTimesWriter::DropBefore(uint64_t offset) {
  uint64_t low = dropped_bytes_ / kLineTimeBytes;
  uint64_t high = size_bytes_ / kLineTimeBytes;
  while (low < high) {
    const uint64_t middle = low + (high - low) / 2;
    char record[kLineTimeBytes];
    const off_t at = static_cast<off_t>(middle * kLineTimeBytes);
    if (pread(file_.get(), record, sizeof(record), at) != sizeof(record)) return;
    if (DecodeLineTime(record).offset <= offset) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  // The last record up to the offset is the time of the line there.
  const uint64_t needed = (low > 0 ? low - 1 : 0) * kLineTimeBytes;
  const uint64_t end = needed / kDropUnitBytes * kDropUnitBytes;
  if (end > dropped_bytes_ && shim::DropBefore(file_.get(), end)) dropped_bytes_ = end;
}

void LineTimesWriter::WritePending() {
  while (!pending_.empty()) {
    const ssize_t n = write(file_.get(), pending_.data(), pending_.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    const size_t whole = static_cast<size_t>(n) / kLineTimeBytes * kLineTimeBytes;
    size_bytes_ += whole;
    pending_.erase(0, whole);
    if (whole == static_cast<size_t>(n)) continue;
    // The next record must start at a multiple of the record size.
    if (ftruncate(file_.get(), static_cast<off_t>(size_bytes_)) != 0) file_.Close();
    return;
  }
}

}  // namespace muster::shim
