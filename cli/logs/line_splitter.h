// Splits the chunks of a log into lines with their times.
#ifndef MUSTER_CLI_LOGS_LINE_SPLITTER_H_
#define MUSTER_CLI_LOGS_LINE_SPLITTER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>

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

}  // namespace muster::cli

#endif  // MUSTER_CLI_LOGS_LINE_SPLITTER_H_
