#include "worker/agent/logs/log_file_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/status.h"
#include "worker/shim/log/line_times.h"
#include "worker/shim/log/lost_output.h"

namespace muster::agent {
namespace {

constexpr size_t kBlockRecords = 256;

constexpr uint64_t kBlockBytes = 64 << 10;

}  // namespace

uint64_t LineTimesReader::Count() {
  if (file_.get() < 0) file_ = OwnedFd(open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info = {};
  if (fstat(file_.get(), &info) != 0) return 0;
  return static_cast<uint64_t>(info.st_size) / shim::kLineTimeBytes;
}

std::vector<shim::LineTime> LineTimesReader::Read(uint64_t index, size_t max) const {
  std::string bytes(max * shim::kLineTimeBytes, '\0');
  ssize_t n = 0;
  do {
    n = pread(file_.get(), bytes.data(), bytes.size(),
              static_cast<off_t>(index * shim::kLineTimeBytes));
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
      file_.get() < 0 ? std::vector<shim::LineTime>() : Read(index, 1);
  if (record.empty()) return std::nullopt;
  return record.front().offset;
}

LogFileReader::LogFileReader(OwnedFd file, const std::string& path)
    : file_(std::move(file)), times_(path + std::string(shim::kLineTimesSuffix)) {}

absl::StatusOr<std::unique_ptr<LogFileReader>> LogFileReader::Open(const std::string& path,
                                                                   bool create) {
  OwnedFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | (create ? O_CREAT : 0), 0640));
  if (file.get() < 0) return ErrnoStatus(errno, path);
  return std::unique_ptr<LogFileReader>(new LogFileReader(std::move(file), path));
}

absl::StatusOr<uint64_t> LogFileReader::Size() const {
  struct stat info = {};
  if (fstat(file_.get(), &info) != 0) return ErrnoStatus(errno, "stat a log");
  return static_cast<uint64_t>(info.st_size);
}

absl::StatusOr<std::string> LogFileReader::ReadAt(uint64_t offset, size_t max_bytes) const {
  std::string data(max_bytes, '\0');
  ssize_t n = 0;
  do {
    n = pread(file_.get(), data.data(), data.size(), static_cast<off_t>(offset));
  } while (n < 0 && errno == EINTR);
  if (n < 0) return ErrnoStatus(errno, "read a log");
  data.resize(static_cast<size_t>(n));
  return data;
}

absl::StatusOr<LogPiece> LogFileReader::Read(size_t max_bytes) {
  uint64_t dropped_bytes = 0;
  while (true) {
    // One byte more at the start shows whether a line starts at the offset.
    const size_t before = offset_ > 0 ? 1 : 0;
    ASSIGN_OR_RETURN(std::string data, ReadAt(offset_ - before, max_bytes + before));
    // After the read, because the shim may drop this part at any time.
    if (const uint64_t kept = shim::FirstKeptOffset(file_.get()); offset_ < kept) {
      RETURN_IF_ERROR(SkipDropped(kept));
      dropped_bytes = offset_;
      continue;
    }
    if (data.size() <= before) return LogPiece{offset_, dropped_bytes, "", {}};
    size_t start = before;
    if (std::exchange(skip_unfinished_, false) && before > 0) {
      const size_t newline = data.find('\n');
      start = newline == std::string::npos ? data.size() : newline + 1;
      skip_unfinished_ = newline == std::string::npos;
    }
    LogPiece piece;
    piece.dropped_bytes = dropped_bytes;
    piece.offset = offset_ - before + start;
    offset_ = offset_ - before + data.size();
    if (start == data.size()) continue;
    std::vector<uint64_t> starts;
    if (start == 0 || data[start - 1] == '\n') starts.push_back(piece.offset);
    piece.data = data.substr(start);
    for (size_t at = piece.data.find('\n'); at < piece.data.size() - 1;
         at = piece.data.find('\n', at + 1)) {
      starts.push_back(piece.offset + at + 1);
    }
    piece.lines = times_.TimesOf(starts);
    return piece;
  }
}

absl::Status LogFileReader::SkipDropped(uint64_t kept) {
  ASSIGN_OR_RETURN(const std::string data, ReadAt(kept, kBlockBytes));
  const size_t newline = data.find('\n');
  offset_ = kept + (newline == std::string::npos ? 0 : newline + 1);
  return absl::OkStatus();
}

absl::Status LogFileReader::SeekLastBytes(uint64_t bytes) {
  ASSIGN_OR_RETURN(const uint64_t size, Size());
  Seek(size > bytes ? size - bytes : 0);
  return absl::OkStatus();
}

absl::Status LogFileReader::SeekTail(uint64_t lines) {
  ASSIGN_OR_RETURN(const uint64_t size, Size());
  const uint64_t kept = shim::FirstKeptOffset(file_.get());
  uint64_t found = 0;
  for (uint64_t end = size; end > kept;) {
    const uint64_t start = std::max(kept, end > kBlockBytes ? end - kBlockBytes : 0);
    ASSIGN_OR_RETURN(const std::string block, ReadAt(start, end - start));
    for (size_t i = block.size(); i > 0; --i) {
      // A newline at the end of the file does not start a line.
      if (block[i - 1] != '\n' || start + i == size) continue;
      if (++found == lines) {
        Seek(start + i);
        return absl::OkStatus();
      }
    }
    end = start;
  }
  Seek(lines == 0 ? size : 0);
  return absl::OkStatus();
}

absl::Status LogFileReader::SeekSince(int64_t unix_micros) {
  // The size is read before the index, so that lines that are written meanwhile are not skipped.
  ASSIGN_OR_RETURN(const uint64_t size, Size());
  if (times_.empty()) return absl::OkStatus();
  const uint64_t start = times_.OffsetSince(unix_micros).value_or(size);
  if (start < offset_) return absl::OkStatus();
  offset_ = start;
  skip_unfinished_ = true;
  return absl::OkStatus();
}

std::optional<v1::LogChunk> ReadLogTail(const std::string& path) {
  const auto reader = LogFileReader::Open(path, /*create=*/false);
  if (!reader.ok() || !(*reader)->SeekLastBytes(limits::kLogTailBytes).ok()) return std::nullopt;
  const bool whole = (*reader)->offset() == 0;
  absl::StatusOr<LogPiece> piece = (*reader)->Read(limits::kLogTailBytes);
  if (!piece.ok()) return std::nullopt;
  const shim::LostOutput lost = shim::ReadLostOutput(path);
  if (piece->data.empty() && lost.bytes == 0) return std::nullopt;
  // Starts at a line, unless that would leave nothing.
  const size_t newline = whole ? std::string::npos : piece->data.find('\n');
  const size_t start = newline >= piece->data.size() - 1 ? 0 : newline + 1;
  v1::LogChunk chunk;
  chunk.set_offset(piece->offset + start);
  chunk.set_data(piece->data.substr(start));
  chunk.set_end(true);
  if (lost.bytes > 0) chunk.set_notice(shim::LostText(lost));
  const size_t known = std::min(piece->lines.size(), limits::kLogTailLines);
  for (auto line = piece->lines.end() - known; line != piece->lines.end(); ++line) {
    if (line->offset < chunk.offset()) continue;
    v1::LineTime& time = *chunk.add_lines();
    time.set_offset(line->offset);
    time.set_unix_micros(line->unix_micros);
  }
  return chunk;
}

}  // namespace muster::agent
