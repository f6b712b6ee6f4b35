#include "cli/output/console.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>

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

Console::~Console() { ClearStatus(); }

void Console::Out(absl::string_view text) {
  absl::MutexLock lock(&mutex_);
  EraseStatus();
  out_ << text << std::flush;
  if (!status_.empty()) err_ << status_ << std::flush;
}

void Console::Err(absl::string_view text) {
  absl::MutexLock lock(&mutex_);
  EraseStatus();
  err_ << text << status_ << std::flush;
}

void Console::Note(absl::string_view line) { Err(absl::StrCat(line, "\n")); }

void Console::Status(absl::string_view text) {
  if (!options_.err_is_terminal) return;
  absl::MutexLock lock(&mutex_);
  EraseStatus();
  // The last column stays free: a terminal would wrap there.
  status_ = std::string(Cut(text, options_.width - 1));
  err_ << status_ << std::flush;
}

void Console::ClearStatus() {
  absl::MutexLock lock(&mutex_);
  EraseStatus();
  err_ << std::flush;
  status_.clear();
}

void Console::EraseStatus() {
  if (!status_.empty()) err_ << kEraseLine;
}

std::string Console::Paint(absl::string_view text, Color color) const {
  if (!options_.color || color == Color::kNone) return std::string(text);
  return absl::StrCat(CodeOf(color), text, "\x1b[0m");
}

}  // namespace muster::cli
