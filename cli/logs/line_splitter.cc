#include "cli/logs/line_splitter.h"

#include <utility>

namespace muster::cli {
namespace {

// Offset of the last state of an unfinished line: a carriage return at its very end does not start
// another one.
size_t LastStateOffset(absl::string_view line) {
  const size_t last = line.find_last_not_of('\r');
  if (last == absl::string_view::npos) return 0;
  const size_t before = line.rfind('\r', last);
  return before == absl::string_view::npos ? 0 : before + 1;
}

}  // namespace

absl::string_view LastState(absl::string_view line) {
  line.remove_prefix(LastStateOffset(line));
  const size_t last = line.find_last_not_of('\r');
  return last == absl::string_view::npos ? absl::string_view() : line.substr(0, last + 1);
}

void LineSplitter::Add(const v1::LogChunk& chunk) {
  data_.erase(0, start_);
  searched_ -= start_;
  start_ = 0;
  if (data_.empty()) offset_ = chunk.offset();
  data_ += chunk.data();
  times_.insert(times_.end(), chunk.lines().begin(), chunk.lines().end());
}

std::optional<LogLine> LineSplitter::Next() {
  if (start_ == data_.size()) return std::nullopt;
  StartLine();
  const size_t newline = data_.find('\n', searched_);
  if (newline != std::string::npos) return Take(newline - start_, true);
  searched_ = data_.size();
  if (last_states_) Compact();
  if (rest().size() > kMaxLineBytes) return Take(rest().size(), false);
  return std::nullopt;
}

std::optional<LogLine> LineSplitter::TakeRest() {
  if (start_ == data_.size()) return std::nullopt;
  StartLine();
  return Take(rest().size(), false);
}

void LineSplitter::StartLine() {
  if (!std::exchange(at_line_start_, false)) return;
  time_.reset();
  redrawn_ = false;
  while (!times_.empty() && times_.front().offset() <= offset_) {
    if (times_.front().offset() == offset_) {
      time_ = absl::FromUnixMicros(times_.front().unix_micros());
    }
    times_.pop_front();
  }
}

LogLine LineSplitter::Take(size_t size, bool terminated) {
  absl::string_view text = absl::string_view(data_).substr(start_, size);
  if (last_states_) text = LastState(text);
  LogLine line = {std::string(text), time_, terminated};
  start_ += size + (terminated ? 1 : 0);
  offset_ += size + (terminated ? 1 : 0);
  searched_ = start_;
  // The next piece of a long line has the time of its first.
  at_line_start_ = terminated;
  return line;
}

void LineSplitter::Compact() {
  const size_t state = LastStateOffset(rest());
  redrawn_ = redrawn_ || rest().find('\r') != absl::string_view::npos;
  data_.erase(start_, state);
  offset_ += state;
  searched_ -= state;
}

}  // namespace muster::cli
