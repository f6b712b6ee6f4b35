#include "worker/agent/logs/log_file_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "worker/shim/dropped_part.h"

namespace muster::agent {
namespace {

constexpr uint64_t kBlockBytes = 64 << 10;

}  // namespace

LogFileReader::LogFileReader(int fd, const std::string& path)
    : fd_(fd), times_(path + std::string(shim::kLineTimesSuffix)) {}

absl::StatusOr<std::unique_ptr<LogFileReader>> LogFileReader::Open(const std::string& path,
                                                                   bool create) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | (create ? O_CREAT : 0), 0640);
  if (fd < 0) return ErrnoStatus(errno, path);
  return std::unique_ptr<LogFileReader>(new LogFileReader(fd, path));
}

LogFileReader::~LogFileReader() { close(fd_); }

absl::StatusOr<uint64_t> LogFileReader::Size() const {
  struct stat info = {};
  if (fstat(fd_, &info) != 0) return ErrnoStatus(errno, "stat a log");
  return static_cast<uint64_t>(info.st_size);
}

absl::StatusOr<std::string> LogFileReader::ReadAt(uint64_t offset, size_t max_bytes) const {
  std::string data(max_bytes, '\0');
  ssize_t n = 0;
  do {
    n = pread(fd_, data.data(), data.size(), static_cast<off_t>(offset));
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
    if (const uint64_t kept = shim::FirstKeptOffset(fd_); offset_ < kept) {
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
  const uint64_t kept = shim::FirstKeptOffset(fd_);
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

}  // namespace muster::agent
