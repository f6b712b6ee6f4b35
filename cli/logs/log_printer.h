// Merges the logs of several ranks into one output, in whole lines.
#ifndef MUSTER_CLI_LOGS_LOG_PRINTER_H_
#define MUSTER_CLI_LOGS_LOG_PRINTER_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "cli/output/console.h"

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
  std::string node;  // empty if not known
  bool is_stderr = false;
};

struct LogStyle {
  LogForm form = LogForm::kText;
  bool timestamps = false;  // the time at which each line arrived
  bool split = false;       // write the ranks' stderr to stderr, not to stdout
};

// Prints one stream of one rank. Not thread-safe; several printers may share a console.
class LogPrinter {
 public:
  // Longer lines are printed in pieces, each with the prefix, because a line that never ends must
  // not be buffered for ever. The node's log keeps only shorter lines whole.
  static constexpr size_t kMaxLineBytes = 4 << 20;

  LogPrinter(Console& console, LogSource source, LogStyle style = LogStyle())
      : console_(console), source_(std::move(source)), style_(style) {}

  void Write(absl::string_view data);
  // Prints an unterminated last line; a newline is added unless the output is unmodified text.
  void Flush();

 private:
  // Whether data is printed unmodified.
  bool plain() const {
    return style_.form == LogForm::kText && source_.prefix.empty() && !style_.timestamps;
  }
  // Appends the line; `line` has no newline.
  void Append(absl::string_view line, absl::string_view time, std::string& out) const;
  void Print(absl::string_view text);

  Console& console_;
  const LogSource source_;
  const LogStyle style_;
  std::string partial_;
};

}  // namespace muster::cli

#endif  // MUSTER_CLI_LOGS_LOG_PRINTER_H_
