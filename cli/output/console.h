// The output of the command line: data goes to `out`, everything else to `err`, which has one
// status line that is redrawn on a terminal.
//
// Text may end within a line (a progress bar of a job). What another writer prints on the same
// terminal or stream then starts on a new line, and the status line is hidden meanwhile.
#ifndef MUSTER_CLI_OUTPUT_CONSOLE_H_
#define MUSTER_CLI_OUTPUT_CONSOLE_H_

#include <ostream>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"

namespace muster::cli {

enum class Color { kNone, kGreen, kRed, kYellow };

// Thread-safe.
class Console {
 public:
  struct Options {
    bool out_is_terminal = false;
    bool err_is_terminal = false;
    bool in_is_terminal = false;  // a user can answer questions
    bool color = false;
    size_t width = 80;  // columns of the terminal
  };
  // The streams outlive the console.
  Console(std::ostream& out, std::ostream& err, Options options)
      : out_(out), err_(err), options_(options) {}
  // Erases the status line.
  ~Console();

  // Options for the process's streams. Colour only on a terminal, and not with NO_COLOR or
  // TERM=dumb.
  static Options Probe();

  // Writes the text unmodified to stdout and flushes. `writer` identifies the source of text that
  // may end within a line.
  void Out(absl::string_view text, const void* writer = nullptr);
  // Writes the text unmodified to stderr and flushes.
  void Err(absl::string_view text, const void* writer = nullptr);
  // Writes a line to stderr, of which `parts` are the text.
  template <typename... Parts>
  void Note(const Parts&... parts) {
    Err(absl::StrCat(parts..., "\n"));
  }
  // Redraws the status line. Has no effect without a terminal.
  void Status(absl::string_view text);
  void ClearStatus();
  // Erases what the terminal echoed of a typed key such as ^C, so that the next text starts a line.
  void EraseEcho();
  // Shows a writer's unfinished line in place of the status line, until the writer replaces it by
  // an empty one. With several writers, the one that called last is shown. Has no effect without a
  // terminal.
  void Live(absl::string_view text, const void* writer);

  std::string Paint(absl::string_view text, Color color) const;
  bool err_is_terminal() const { return options_.err_is_terminal; }
  // Whether stdout and stderr are (the same) terminal.
  bool is_terminal() const { return options_.out_is_terminal && options_.err_is_terminal; }
  // Whether a question can be asked and answered.
  bool interactive() const { return options_.err_is_terminal && options_.in_is_terminal; }

 private:
  void Write(absl::string_view text, bool to_err, const void* writer) ABSL_LOCKS_EXCLUDED(mutex_);
  // Ends unfinished lines of other writers on the same terminal or stream.
  void EndUnfinishedLines(bool to_err, const void* writer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether unfinished text is where the status line would be.
  bool within_line() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return unfinished_[1].exists || (is_terminal() && unfinished_[0].exists);
  }
  void EraseStatus() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DrawStatus() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  std::ostream& out_;
  std::ostream& err_;
  const Options options_;
  absl::Mutex mutex_;
  std::string status_ ABSL_GUARDED_BY(mutex_);
  std::string live_ ABSL_GUARDED_BY(mutex_);
  const void* live_writer_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool drawn_ ABSL_GUARDED_BY(mutex_) = false;  // status_ or live_ is on the terminal
  // Unfinished lines of stdout and of stderr.
  struct Unfinished {
    bool exists = false;
    const void* writer = nullptr;
    bool at_column_0 = false;  // after a carriage return
  };
  Unfinished unfinished_[2] ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster::cli

#endif  // MUSTER_CLI_OUTPUT_CONSOLE_H_
