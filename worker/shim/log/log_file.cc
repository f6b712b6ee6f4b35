#include "worker/shim/log/log_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "worker/shim/log/line_times.h"

namespace muster::shim {

bool LogFile::Open(const std::string& path, uint64_t max_bytes) {
  max_bytes_ = max_bytes;
  file_ = OwnedFd(open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0640));
  if (file_.get() < 0) return false;
  const off_t size = lseek(file_.get(), 0, SEEK_END);
  if (size > 0) {
    size_bytes_ = static_cast<uint64_t>(size);
    dropped_bytes_ = FirstKeptOffset(file_.get());
    char last = '\n';
    at_line_start_ = pread(file_.get(), &last, 1, size - 1) != 1 || last == '\n';
  }
  times_.Open(path + std::string(kLineTimesSuffix));
  lost_ = lost_file_.Open(path);
  in_gap_ = lost_.unmarked_lines > 0;
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
  // The rest of a line that was lost in part may follow.
  const bool gap_in_line = std::exchange(gap_in_line_, false);
  Write((at_line_start_ || in_gap_ ? "" : "\n") + waiting_notes_, unix_micros);
  waiting_notes_.clear();
  gap_in_line_ = gap_in_line_ || gap_in_line;
}

void LogFile::Finish(int64_t unix_micros) {
  WriteNotes(unix_micros);
  if (std::exchange(gap_in_line_, false)) {
    in_gap_ = true;
    ++lost_.lines;
    ++lost_.unmarked_lines;
    lost_file_.Write(lost_);
  }
  Write("", unix_micros);
}

void LogFile::Write(std::string_view data, int64_t unix_micros) {
  if (data.empty() && !in_gap_) return;
  if (full_) return Lose(data, "the log has reached its limit");
  if (gap_in_line_) {
    // A part of a line would look like a line of the program.
    const std::string_view rest = data.substr(0, data.find_first_of("\r\n"));
    const size_t end = std::min(rest.size() + 1, data.size());
    Lose(data.substr(0, end), lost_.reason);
    data.remove_prefix(end);
    if (data.empty()) return;
  }
  const std::string mark = in_gap_ ? Mark() : "";
  const bool starts_line = at_line_start_ || !mark.empty() || data.find('\n') < data.size() - 1;
  if (starts_line) times_.Add({size_bytes_, unix_micros});
  if (WriteBytes(mark) < mark.size()) return Lose(data, std::strerror(errno));
  if (in_gap_) {
    in_gap_ = false;
    lost_.unmarked_lines = 0;
    lost_file_.Write(lost_);
  }
  data.remove_prefix(WriteBytes(data));
  if (!data.empty()) Lose(data, std::strerror(errno));
  ApplyLimit();
}

size_t LogFile::WriteBytes(std::string_view data) {
  size_t written = 0;
  while (written < data.size()) {
    const ssize_t n = write(file_.get(), data.data() + written, data.size() - written);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    written += static_cast<size_t>(n);
  }
  size_bytes_ += written;
  if (written > 0) at_line_start_ = data[written - 1] == '\n';
  return written;
}

void LogFile::Lose(std::string_view data, std::string_view reason) {
  if (data.empty()) return;
  lost_.AddBytes(data, std::string(reason));
  in_gap_ = true;
  gap_in_line_ = data.back() != '\n' && data.back() != '\r';
  lost_file_.Write(lost_);
}

std::string LogFile::Mark() const {
  return (at_line_start_ ? "" : "\n") + std::string("[muster: ") + LinesText(lost_.unmarked_lines) +
         " lost: " + lost_.reason + "]\n";
}

void LogFile::ApplyLimit() {
  const auto kept_bytes = [this] { return size_bytes_ - dropped_bytes_ + times_.kept_bytes(); };
  while (max_bytes_ > 0 && !full_ && kept_bytes() > max_bytes_) {
    const uint64_t quarter = (size_bytes_ - dropped_bytes_) / 4 / kDropUnitBytes * kDropUnitBytes;
    const uint64_t end = dropped_bytes_ + std::max(quarter, kDropUnitBytes);
    full_ = end > size_bytes_ || !DropBefore(file_.get(), end);
    if (full_) return;
    dropped_bytes_ = end;
    times_.DropBefore(end);
  }
}

void Tail::Append(std::string_view data) {
  while (!data.empty()) {
    const size_t newline = data.find('\n');
    AppendToLine(data.substr(0, newline));
    if (newline == std::string_view::npos) break;
    data_ += RestOfLine() + '\n';
    line_bytes_ = 0;
    line_end_.clear();
    data.remove_prefix(newline + 1);
  }
  if (data_.size() > max_bytes_) data_.erase(0, data_.size() - max_bytes_);
}

void Tail::AppendToLine(std::string_view part) {
  const size_t room = kLineEndBytes - std::min(kLineEndBytes, line_bytes_);
  data_ += part.substr(0, room);
  line_bytes_ += part.size();
  if (part.size() <= room) return;
  line_end_ += part.substr(room);
  if (line_end_.size() > kLineEndBytes) line_end_.erase(0, line_end_.size() - kLineEndBytes);
}

std::string Tail::RestOfLine() const {
  const size_t kept = std::min(kLineEndBytes, line_bytes_) + line_end_.size();
  if (kept == line_bytes_) return line_end_;
  return " ... [" + std::to_string(line_bytes_ - kept) + " bytes omitted] ... " + line_end_;
}

std::string Tail::Lines() const {
  std::string data = data_ + RestOfLine();
  if (data.size() > max_bytes_) data.erase(0, data.size() - max_bytes_);
  size_t start = data.size();
  // A final newline does not start another line.
  if (start > 0 && data[start - 1] == '\n') --start;
  for (size_t lines = 0; lines < max_lines_; ++lines) {
    if (start == 0) return data;
    const size_t newline = data.rfind('\n', start - 1);
    if (newline == std::string::npos) return data;
    start = newline;
  }
  return data.substr(start + 1);
}

}  // namespace muster::shim
