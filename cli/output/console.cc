#include "cli/output/console.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"

namespace muster::cli {
namespace {

constexpr char kEraseLine[] = "\r\x1b[K";

// The first `width` code points.
absl::string_view Cut(absl::string_view text, size_t width) {
  size_t points = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80 && points++ == width) {
      return text.substr(0, i);
    }
  }
  return text;
}

const char* CodeOf(Color color) {
  switch (color) {
    case Color::kGreen:
      return "\x1b[32m";
    case Color::kRed:
      return "\x1b[31m";
    case Color::kYellow:
      return "\x1b[33m";
    case Color::kNone:
      break;
  }
  return "";
}

}  // namespace

Console::Options Console::Probe() {
  Options options;
  options.out_is_terminal = isatty(STDOUT_FILENO) == 1;
  options.err_is_terminal = isatty(STDERR_FILENO) == 1;
  options.in_is_terminal = isatty(STDIN_FILENO) == 1;
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  options.color = options.err_is_terminal && (no_color == nullptr || *no_color == '\0') &&
                  term != nullptr && absl::string_view(term) != "dumb";
  winsize size;
  if (options.err_is_terminal && ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    options.width = size.ws_col;
  }
  return options;
}

Console::~Console() {
  absl::MutexLock lock(&mutex_);
  EraseStatus();
  err_ << std::flush;
}

void Console::Out(absl::string_view text, const void* writer) { Write(text, false, writer); }

void Console::Err(absl::string_view text, const void* writer) { Write(text, true, writer); }

void Console::Write(absl::string_view text, bool to_err, const void* writer) {
  if (text.empty()) return;
  absl::MutexLock lock(&mutex_);
  EraseStatus();
  EndUnfinishedLines(to_err, writer);
  (to_err ? err_ : out_) << text << std::flush;
  unfinished_[to_err] = {text.back() != '\n', writer, text.back() == '\r'};
  DrawStatus();
}

void Console::EndUnfinishedLines(bool to_err, const void* writer) {
  for (const bool err : {false, true}) {
    Unfinished& unfinished = unfinished_[err];
    const bool continues = err == to_err && unfinished.writer == writer;
    if (!unfinished.exists || continues || (err != to_err && !is_terminal())) continue;
    (err ? err_ : out_) << (is_terminal() && unfinished.at_column_0 ? kEraseLine : "\n")
                        << std::flush;
    unfinished.exists = false;
  }
}

void Console::Status(absl::string_view text) {
  if (!options_.err_is_terminal) return;
  absl::MutexLock lock(&mutex_);
  EraseStatus();
  // The last column stays free: a terminal would wrap there.
  status_ = std::string(Cut(text, options_.width - 1));
  DrawStatus();
}

void Console::ClearStatus() {
  absl::MutexLock lock(&mutex_);
  EraseStatus();
  status_.clear();
  DrawStatus();
}

void Console::EraseEcho() {
  absl::MutexLock lock(&mutex_);
  // Within an unfinished line, the next writer starts a new one.
  if (!options_.err_is_terminal || within_line()) return;
  drawn_ = false;
  err_ << kEraseLine;
  DrawStatus();
}

void Console::Live(absl::string_view text, const void* writer) {
  if (!options_.err_is_terminal) return;
  absl::MutexLock lock(&mutex_);
  if (text.empty() && live_writer_ != writer) return;
  EraseStatus();
  live_ = std::string(Cut(text, options_.width - 1));
  live_writer_ = writer;
  DrawStatus();
}

void Console::EraseStatus() {
  if (std::exchange(drawn_, false)) err_ << kEraseLine;
}

void Console::DrawStatus() {
  if (options_.err_is_terminal && !within_line()) {
    const std::string& text = live_.empty() ? status_ : live_;
    drawn_ = !text.empty();
    err_ << text;
  }
  err_ << std::flush;
}

std::string Console::Paint(absl::string_view text, Color color) const {
  if (!options_.color || color == Color::kNone) return std::string(text);
  return absl::StrCat(CodeOf(color), text, "\x1b[0m");
}

}  // namespace muster::cli
