// Where the command line writes: data to `out`, everything else to `err`, with one line that is
// redrawn where somebody watches.
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
    bool in_is_terminal = false;  // somebody can be asked
    bool color = false;
    size_t width = 80;  // of the terminal
  };
  // The streams outlive the console.
  Console(std::ostream& out, std::ostream& err, Options options)
      : out_(out), err_(err), options_(options) {}
  // Leaves the cursor on a line of its own.
  ~Console();

  // The process's own streams. Colour only on a terminal, and not with NO_COLOR or TERM=dumb.
  static Options Probe();

  // As it is, to stdout, at once.
  void Out(absl::string_view text);
  // The same to stderr.
  void Err(absl::string_view text);
  // A line to stderr.
  void Note(absl::string_view line);
  // Redraws the terminal's last line. Nothing off a terminal.
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
