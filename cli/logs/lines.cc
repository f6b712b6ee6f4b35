#include "cli/logs/lines.h"

#include <algorithm>
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

LineMerger::LineMerger(std::vector<LineSource> sources)
    : sources_(std::move(sources)), heads_(sources_.size()) {
  for (size_t source = 0; source < sources_.size(); ++source) {
    Advance(source, absl::InfinitePast());
  }
}

void LineMerger::Advance(size_t source, absl::Time after) {
  std::optional<LogLine> line = sources_[source]();
  if (!line.has_value()) return;
  queue_.emplace(std::max(after, line->time.value_or(after)), source);
  heads_[source] = *std::move(line);
}

std::optional<MergedLine> LineMerger::Next() {
  if (queue_.empty()) return std::nullopt;
  const auto [order, source] = queue_.top();
  queue_.pop();
  MergedLine merged = {source, std::move(heads_[source]), order};
  Advance(source, order);
  return merged;
}

void LineTail::Add(uint64_t key, MergedLine line) {
  auto& lines = lines_[key];
  lines.emplace_back(added_++, std::move(line));
  if (lines.size() > max_lines_) lines.pop_front();
}

std::vector<MergedLine> LineTail::Take() {
  std::map<uint64_t, MergedLine> numbered;
  for (auto& [key, lines] : lines_) {
    for (auto& [number, line] : lines) numbered.emplace(number, std::move(line));
  }
  lines_.clear();
  std::vector<MergedLine> all;
  for (auto& [number, line] : numbered) all.push_back(std::move(line));
  return all;
}

}  // namespace muster::cli
