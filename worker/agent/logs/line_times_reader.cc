#include "worker/agent/logs/line_times_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace muster::agent {
namespace {

constexpr size_t kBlockRecords = 256;

}  // namespace

LineTimesReader::~LineTimesReader() {
  if (fd_ >= 0) close(fd_);
}

uint64_t LineTimesReader::Count() {
  if (fd_ < 0) fd_ = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat info = {};
  if (fd_ < 0 || fstat(fd_, &info) != 0) return 0;
  return static_cast<uint64_t>(info.st_size) / shim::kLineTimeBytes;
}

std::vector<shim::LineTime> LineTimesReader::Read(uint64_t index, size_t max) const {
  std::string bytes(max * shim::kLineTimeBytes, '\0');
  ssize_t n = 0;
  do {
    n = pread(fd_, bytes.data(), bytes.size(), static_cast<off_t>(index * shim::kLineTimeBytes));
  } while (n < 0 && errno == EINTR);
  std::vector<shim::LineTime> records;
  for (ssize_t at = 0; at + static_cast<ssize_t>(shim::kLineTimeBytes) <= n;
       at += shim::kLineTimeBytes) {
    records.push_back(shim::DecodeLineTime(bytes.data() + at));
  }
  return records;
}

template <typename Before>
uint64_t LineTimesReader::Partition(Before before) {
  uint64_t low = 0;
  uint64_t high = Count();
  while (low < high) {
    const uint64_t middle = low + (high - low) / 2;
    const std::vector<shim::LineTime> record = Read(middle, 1);
    if (!record.empty() && before(record.front())) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

std::vector<shim::LineTime> LineTimesReader::TimesOf(const std::vector<uint64_t>& starts) {
  std::vector<shim::LineTime> lines;
  if (starts.empty() || empty()) return lines;
  std::vector<shim::LineTime> block = Read(last_used_, kBlockRecords);
  if (block.empty() || block.front().offset > starts.front()) {
    const uint64_t after =
        Partition([&](const shim::LineTime& record) { return record.offset <= starts.front(); });
    last_used_ = after > 0 ? after - 1 : 0;
    block = Read(last_used_, kBlockRecords);
  }
  size_t used = 0;  // in the block
  for (const uint64_t start : starts) {
    while (true) {
      if (used + 1 == block.size() && block.size() > 1) {
        last_used_ += used;
        used = 0;
        block = Read(last_used_, kBlockRecords);
      }
      if (used + 1 >= block.size() || block[used + 1].offset > start) break;
      ++used;
    }
    if (block.empty()) break;
    const bool known = block[used].unix_micros > 0;  // zero in a dropped part
    if (known && block[used].offset <= start) lines.push_back({start, block[used].unix_micros});
  }
  last_used_ += used;
  return lines;
}

std::optional<uint64_t> LineTimesReader::OffsetSince(int64_t unix_micros) {
  const uint64_t index =
      Partition([&](const shim::LineTime& record) { return record.unix_micros < unix_micros; });
  const std::vector<shim::LineTime> record =
      fd_ < 0 ? std::vector<shim::LineTime>() : Read(index, 1);
  if (record.empty()) return std::nullopt;
  return record.front().offset;
}

}  // namespace muster::agent
