// Merges the lines of several logs by their times.
#ifndef MUSTER_CLI_LOGS_LINE_MERGER_H_
#define MUSTER_CLI_LOGS_LINE_MERGER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "cli/logs/line_splitter.h"

namespace muster::cli {

// Returns the next line of a log; absent at its end.
using LineSource = std::function<std::optional<LogLine>()>;

struct MergedLine {
  size_t source = 0;
  LogLine line;
  // Position in time: that of the line, or of the one before it in its log if it is not known, but
  // never before an earlier line of its log.
  absl::Time order = absl::InfinitePast();
};

// Holds one line of each source. Lines of equal position come in the order of the sources. A log
// without times comes first. Not thread-safe.
class LineMerger {
 public:
  explicit LineMerger(std::vector<LineSource> sources);
  // Returns the next line; absent when all sources are at their end.
  std::optional<MergedLine> Next();

 private:
  void Advance(size_t source, absl::Time after);

  const std::vector<LineSource> sources_;
  std::vector<LogLine> heads_;  // by source
  using Position = std::pair<absl::Time, size_t>;
  std::priority_queue<Position, std::vector<Position>, std::greater<Position>> queue_;
};

// The last lines of each key, in their common order.
class LineTail {
 public:
  explicit LineTail(uint64_t max_lines) : max_lines_(max_lines) {}
  void Add(uint64_t key, MergedLine line);
  std::vector<MergedLine> Take();

 private:
  const uint64_t max_lines_;
  uint64_t added_ = 0;
  std::map<uint64_t, std::deque<std::pair<uint64_t, MergedLine>>> lines_;  // with their numbers
};

}  // namespace muster::cli

#endif  // MUSTER_CLI_LOGS_LINE_MERGER_H_
