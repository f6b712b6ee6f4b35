#include "cli/text/blocker_text.h"

#include "absl/strings/str_cat.h"
#include "cli/output/words.h"

namespace muster::cli {

std::string BlockerLines(const v1::WaitedFor& blocker) {
  std::string text = blocker.has_rank() ? absl::StrCat("rank ", blocker.rank()) : "";
  if (!blocker.node().empty()) absl::StrAppend(&text, text.empty() ? "" : " on ", blocker.node());
  if (!blocker.reason().empty()) absl::StrAppend(&text, text.empty() ? "" : ": ", blocker.reason());
  std::string out = absl::StrCat("  ", Printable(text), "\n");
  if (!blocker.remedy().empty()) {
    absl::StrAppend(&out, "    -> ", Printable(blocker.remedy()), "\n");
  }
  return out;
}

}  // namespace muster::cli
