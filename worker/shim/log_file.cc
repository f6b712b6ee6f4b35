#include "worker/shim/log_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace muster::shim {

LogFile::~LogFile() {
  if (fd_ >= 0) close(fd_);
}

bool LogFile::Open(const std::string& path) {
  fd_ = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
  return fd_ >= 0;
}

void LogFile::Append(std::string_view data) {
  const size_t newline = data.rfind('\n');
  if (newline == std::string_view::npos) {
    partial_line_ += data;
  } else if (partial_line_.empty()) {
    Write(data.substr(0, newline + 1));
    partial_line_ = data.substr(newline + 1);
  } else {
    partial_line_ += data.substr(0, newline + 1);
    Write(partial_line_);
    partial_line_ = data.substr(newline + 1);
  }
  if (partial_line_.size() > kMaxLineBytes) Flush();
}

void LogFile::AppendLine(std::string_view line) { Write(std::string(line) + '\n'); }

void LogFile::Flush() {
  Write(partial_line_);
  partial_line_.clear();
}

void LogFile::Write(std::string_view data) {
  while (!data.empty()) {
    const ssize_t n = write(fd_, data.data(), data.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      lost_bytes_ += data.size();
      return;
    }
    data.remove_prefix(static_cast<size_t>(n));
  }
}

void Tail::Append(std::string_view data) {
  if (data.size() >= max_bytes_) {
    data_ = data.substr(data.size() - max_bytes_);
    return;
  }
  data_ += data;
  if (data_.size() > max_bytes_) data_.erase(0, data_.size() - max_bytes_);
}

std::string Tail::Lines() const {
  size_t start = data_.size();
  // A final newline does not start another line.
  if (start > 0 && data_[start - 1] == '\n') --start;
  for (size_t lines = 0; lines < max_lines_; ++lines) {
    if (start == 0) return data_;
    const size_t newline = data_.rfind('\n', start - 1);
    if (newline == std::string::npos) return data_;
    start = newline;
  }
  return data_.substr(start + 1);
}

}  // namespace muster::shim
