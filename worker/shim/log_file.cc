#include "worker/shim/log_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "worker/shim/dropped_part.h"

namespace muster::shim {

LogFile::~LogFile() {
  if (fd_ >= 0) close(fd_);
}

bool LogFile::Open(const std::string& path, uint64_t max_bytes) {
  max_bytes_ = max_bytes;
  fd_ = open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
  if (fd_ < 0) return false;
  const off_t size = lseek(fd_, 0, SEEK_END);
  if (size > 0) {
    size_bytes_ = static_cast<uint64_t>(size);
    dropped_bytes_ = FirstKeptOffset(fd_);
    char last = '\n';
    at_line_start_ = pread(fd_, &last, 1, size - 1) != 1 || last == '\n';
  }
  times_.Open(path + std::string(kLineTimesSuffix));
  return true;
}

void LogFile::Append(std::string_view data, int64_t unix_micros) {
  const size_t newline = has_waiting_notes() ? data.find('\n') : std::string_view::npos;
  if (newline != std::string_view::npos) {
    Write(data.substr(0, newline + 1), unix_micros);
    WriteNotes(unix_micros);
    data.remove_prefix(newline + 1);
  }
  Write(data, unix_micros);
}

void LogFile::AddNote(std::string_view line, int64_t unix_micros) {
  waiting_notes_.append(line).append("\n");
  if (at_line_start_) WriteNotes(unix_micros);
}

void LogFile::WriteNotes(int64_t unix_micros) {
  if (waiting_notes_.empty()) return;
  Write((at_line_start_ ? "" : "\n") + waiting_notes_, unix_micros);
  waiting_notes_.clear();
}

void LogFile::Write(std::string_view data, int64_t unix_micros) {
  if (data.empty()) return;
  if (full_) {
    lost_bytes_ += data.size();
    return;
  }
  const bool starts_line = at_line_start_ || data.find('\n') < data.size() - 1;
  if (starts_line) times_.Add({size_bytes_, unix_micros});
  while (!data.empty()) {
    const ssize_t n = write(fd_, data.data(), data.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      lost_bytes_ += data.size();
      return;
    }
    const auto written = static_cast<size_t>(n);
    size_bytes_ += written;
    at_line_start_ = data[written - 1] == '\n';
    data.remove_prefix(written);
  }
  ApplyLimit();
}

void LogFile::ApplyLimit() {
  const auto kept_bytes = [this] { return size_bytes_ - dropped_bytes_ + times_.kept_bytes(); };
  while (max_bytes_ > 0 && !full_ && kept_bytes() > max_bytes_) {
    const uint64_t quarter = (size_bytes_ - dropped_bytes_) / 4 / kDropUnitBytes * kDropUnitBytes;
    const uint64_t end = dropped_bytes_ + std::max(quarter, kDropUnitBytes);
    full_ = end > size_bytes_ || !DropBefore(fd_, end);
    if (full_) return;
    dropped_bytes_ = end;
    times_.DropBefore(end);
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
