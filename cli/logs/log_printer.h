// Prints the lines of one stream of one rank.
#ifndef MUSTER_CLI_LOGS_LOG_PRINTER_H_
#define MUSTER_CLI_LOGS_LOG_PRINTER_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "cli/logs/lines.h"
#include "cli/output/console.h"
#include "common/time/now.h"
#include "common/time/time.h"
#include "proto/muster/v1/cluster.pb.h"

namespace muster::cli {

enum class LogForm {
  kText,
  kJson,  // one object per line
  kYaml,  // a list, one element per line
};

// One stream of one rank.
struct LogSource {
  std::string prefix;  // printed before each line, in text
  uint64_t generation = 0;
  uint32_t rank = 0;
  std::optional<uint32_t> task = {};  // index of the job in its array
  std::string node;                   // empty if not known
  bool is_stderr = false;
};

struct LogStyle {
  LogForm form = LogForm::kText;
  bool timestamps = false;  // the time at which the rank began each line
  bool split = false;       // write the ranks' stderr to stderr, not to stdout
  bool live = false;        // lines are printed while the ranks write them
};

// Text without prefix and timestamps is printed unmodified. Otherwise, and in live output that does
// not go to a terminal, only the last state of a line that is redrawn with carriage returns is
// printed.
//
// Live output on a terminal shows unfinished lines: unmodified text as it arrives, so that progress
// bars redraw themselves, other text in place of the status line. Elsewhere the state of a redrawn
// line is printed as a line of its own, at most once per kStateInterval.
//
// Not thread-safe; several printers may share a console.
class LogPrinter {
 public:
  static constexpr absl::Duration kStateInterval = absl::Seconds(1);

  LogPrinter(Console& console, LogSource source, LogStyle style = LogStyle(),
             std::function<Time()> clock = Now);

  // Splits the log's chunks as Write would.
  LineSplitter NewSplitter() const { return LineSplitter(!unmodified_); }
  // Appends the line as it is printed.
  void Format(const LogLine& line, std::string& out) const;
  // Prints formatted lines.
  void Print(absl::string_view text);
  bool to_stderr() const { return style_.split && source_.is_stderr; }

  // Continues after the lines that `splitter` has returned.
  void Continue(LineSplitter splitter);
  // Prints the lines of the next chunk.
  void Write(const v1::LogChunk& chunk);
  // Prints an unfinished last line; a newline is added unless the text is unmodified.
  void Flush();

 private:
  bool plain() const {
    return style_.form == LogForm::kText && source_.prefix.empty() && !style_.timestamps;
  }
  bool raw() const { return style_.live && plain() && console_.is_terminal(); }
  void FormatText(absl::string_view text, std::optional<absl::Time> time, std::string& out) const;
  void FormatObject(const LogLine& line, std::string& out) const;
  void PrintLines();
  void ShowUnfinished();

  Console& console_;
  const LogSource source_;
  const LogStyle style_;
  const std::function<Time()> clock_;
  const bool unmodified_;
  LineSplitter splitter_;
  SteadyTime next_state_;
};

}  // namespace muster::cli

#endif  // MUSTER_CLI_LOGS_LOG_PRINTER_H_
