#include "cli/logs/line_merger.h"

#include <algorithm>

namespace muster::cli {

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
