// The output of the command line: data goes to `out`, everything else to `err`, which has one
// status line that is redrawn on a terminal.
#ifndef MUSTER_CLI_OUTPUT_CONSOLE_H_
#define MUSTER_CLI_OUTPUT_CONSOLE_H_

#include <ostream>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"

namespace muster::cli {

enum class Color { kNone, kGreen, kRed, kYellow };

// Thread-safe.
class Console {
 public:
  struct Options {
    bool err_is_terminal = false;
    bool in_is_terminal = false;  // a user can answer questions
    bool color = false;
    size_t width = 80;  // of the terminal
  };
  // The streams outlive the console.
  Console(std::ostream& out, std::ostream& err, Options options)
      : out_(out), err_(err), options_(options) {}
  // Erases the status line.
  ~Console();

  // Options for the process's streams. Colour only on a terminal, and not with NO_COLOR or
  // TERM=dumb.
  static Options Probe();

  // Writes the text unmodified to stdout and flushes.
  void Out(absl::string_view text);
  // Writes the text unmodified to stderr and flushes.
  void Err(absl::string_view text);
  // Writes a line to stderr.
  void Note(absl::string_view line);
  // Redraws the status line. Has no effect without a terminal.
  void Status(absl::string_view text);
  void ClearStatus();

  std::string Paint(absl::string_view text, Color color) const;
  bool err_is_terminal() const { return options_.err_is_terminal; }
  // Whether a question can be asked and answered.
  bool interactive() const { return options_.err_is_terminal && options_.in_is_terminal; }

 private:
  void EraseStatus() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  std::ostream& out_;
  std::ostream& err_;
  const Options options_;
  absl::Mutex mutex_;
  std::string status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster::cli

#endif  // MUSTER_CLI_OUTPUT_CONSOLE_H_
