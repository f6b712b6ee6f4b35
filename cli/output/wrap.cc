#include "cli/output/wrap.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cli/output/words.h"

namespace muster::cli {
namespace {

constexpr uint32_t kDefaultWidth = 80;
constexpr uint32_t kMinWidth = 60;

}  // namespace

size_t TextWidth() {
  uint32_t width = kDefaultWidth;
  const char* columns = std::getenv("COLUMNS");
  winsize size;
  if (columns == nullptr || !absl::SimpleAtoi(columns, &width)) {
    const bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    width = known ? size.ws_col : kDefaultWidth;
  }
  return std::max(width, kMinWidth);
}

std::vector<std::string> WrappedLines(absl::string_view text, size_t width) {
  std::vector<std::string> lines;
  size_t used = 0;  // columns of the last line
  for (const absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    const size_t columns = DisplayWidth(word);
    if (lines.empty() || used + 1 + columns > width) {
      lines.emplace_back(word);
      used = columns;
    } else {
      absl::StrAppend(&lines.back(), " ", word);
      used += 1 + columns;
    }
  }
  return lines;
}

}  // namespace muster::cli
