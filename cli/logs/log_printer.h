// Puts the logs of several ranks into one output, whole lines at a time.
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
  kJson,  // an object a line
  kYaml,  // one list, an element a line
};

// One stream of one rank.
struct LogSource {
  std::string prefix;  // of a line, in text
  uint64_t generation = 0;
  uint32_t rank = 0;
  std::string node;  // empty where it is not known
  bool is_stderr = false;
};

struct LogStyle {
  LogForm form = LogForm::kText;
  bool timestamps = false;  // when each line came here
  bool split = false;       // what ranks wrote to stderr goes to stderr, not to stdout
};

// Not thread-safe; several may share a console.
class LogPrinter {
 public:
  // The rest of a longer line goes on under a prefix of its own: without an end it would be kept
  // for ever. What the node's own log keeps whole is shorter.
  static constexpr size_t kMaxLineBytes = 4 << 20;

  LogPrinter(Console& console, LogSource source, LogStyle style = LogStyle())
      : console_(console), source_(std::move(source)), style_(style) {}

  void Write(absl::string_view data);
  // What is left without a line's end; the end is added where lines are changed anyway.
  void Flush();

 private:
  // As they are, but for an end that is missing.
  bool plain() const {
    return style_.form == LogForm::kText && source_.prefix.empty() && !style_.timestamps;
  }
  // Appends the line, which has no end.
  void Append(absl::string_view line, absl::string_view time, std::string& out) const;
  void Print(absl::string_view text);

  Console& console_;
  const LogSource source_;
  const LogStyle style_;
  std::string partial_;
};

}  // namespace muster::cli

#endif  // MUSTER_CLI_LOGS_LOG_PRINTER_H_
