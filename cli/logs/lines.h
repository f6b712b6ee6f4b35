// Splits the chunks of logs into lines with their times, and merges the lines of several logs.
#ifndef MUSTER_CLI_LOGS_LINES_H_
#define MUSTER_CLI_LOGS_LINES_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/muster/v1/cluster.pb.h"

namespace muster::cli {

struct LogLine {
  std::string text;                // without its newline
  std::optional<absl::Time> time;  // beginning of the line; absent if not known
  bool terminated = true;          // false: the unfinished end of a log, or a piece of a long line
};

// The last state of a line that a program redraws with carriage returns, as progress bars do; other
// lines as they are.
absl::string_view LastState(absl::string_view line);

// Not thread-safe.
class LineSplitter {
 public:
  // Longer lines are returned in pieces, because a line that never ends must not be buffered for
  // ever.
  static constexpr size_t kMaxLineBytes = 4 << 20;

  // With `last_states`, only the last state of a redrawn line is kept.
  explicit LineSplitter(bool last_states) : last_states_(last_states) {}

  // Each byte of a log is added once, in order; chunks may end anywhere.
  void Add(const v1::LogChunk& chunk);
  // Returns the next line that has ended.
  std::optional<LogLine> Next();
  // Returns the unfinished last line once the log has ended; absent if there is none.
  std::optional<LogLine> TakeRest();

  // The unfinished last line so far, once Next has returned all lines.
  absl::string_view rest() const { return absl::string_view(data_).substr(start_); }
  std::optional<absl::Time> rest_time() const { return time_; }
  // Whether it has been redrawn.
  bool rest_redrawn() const { return redrawn_; }

 private:
  LogLine Take(size_t size, bool terminated);
  void StartLine();
  // Removes all but the last state of the unfinished line.
  void Compact();

  bool last_states_;
  std::string data_;
  size_t start_ = 0;     // start of the next line in data_
  size_t searched_ = 0;  // data_ has no newline from start_ to here
  uint64_t offset_ = 0;  // offset of the next line in the log
  bool at_line_start_ = true;
  bool redrawn_ = false;
  std::optional<absl::Time> time_;  // time of the next line
  std::deque<v1::LineTime> times_;  // times of later lines
};

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

#endif  // MUSTER_CLI_LOGS_LINES_H_
