#include "worker/agent/logs/log_file_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace muster::agent {

absl::StatusOr<std::unique_ptr<LogFileReader>> LogFileReader::Open(const std::string& path,
                                                                   bool create) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | (create ? O_CREAT : 0), 0640);
  if (fd < 0) return ErrnoStatus(errno, path);
  return std::unique_ptr<LogFileReader>(new LogFileReader(fd));
}

LogFileReader::~LogFileReader() { close(fd_); }

absl::StatusOr<std::string> LogFileReader::Read(size_t max_bytes) {
  std::string data(max_bytes, '\0');
  ssize_t n = 0;
  do {
    n = pread(fd_, data.data(), data.size(), static_cast<off_t>(offset_));
  } while (n < 0 && errno == EINTR);
  if (n < 0) return ErrnoStatus(errno, "read a log");
  data.resize(static_cast<size_t>(n));
  offset_ += data.size();
  return data;
}

absl::Status LogFileReader::SeekTail(uint64_t lines) {
  constexpr uint64_t kBlock = 64 << 10;
  struct stat info = {};
  if (fstat(fd_, &info) != 0) return ErrnoStatus(errno, "stat a log");
  const auto size = static_cast<uint64_t>(info.st_size);
  uint64_t found = 0;
  for (uint64_t end = size; end > 0;) {
    const uint64_t start = end > kBlock ? end - kBlock : 0;
    Seek(start);
    ASSIGN_OR_RETURN(const std::string block, Read(end - start));
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

}  // namespace muster::agent
