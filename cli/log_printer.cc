#include "cli/log_printer.h"

#include "absl/strings/str_cat.h"
#include "common/limits.h"

namespace muster::cli {

void LogPrinter::Write(absl::string_view data) {
  std::string lines;
  while (true) {
    const size_t end = data.find('\n');
    if (end == absl::string_view::npos) break;
    absl::StrAppend(&lines, prefix_, partial_, data.substr(0, end + 1));
    partial_.clear();
    data.remove_prefix(end + 1);
  }
  partial_.append(data.data(), data.size());
  if (!lines.empty()) console_.Out(lines);
  // A line without an end would otherwise be kept for ever.
  if (partial_.size() > limits::kLogChunkBytes) Flush();
}

void LogPrinter::Flush() {
  if (partial_.empty()) return;
  console_.Out(absl::StrCat(prefix_, partial_, prefix_.empty() ? "" : "\n"));
  partial_.clear();
}

}  // namespace muster::cli
