#include "common/text/wait_text.h"

#include <algorithm>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/time/proto_time.h"

namespace muster {
namespace {

std::string WhoText(const v1::WaitedFor& who) {
  if (!who.has_rank() && who.node().empty()) return who.reason();
  const std::string name =
      who.has_rank() ? absl::StrCat("rank ", who.rank()) : absl::StrCat("node ", who.node());
  std::vector<std::string> parts;
  if (who.has_rank() && !who.node().empty()) parts.push_back(absl::StrCat("node ", who.node()));
  if (!who.reason().empty()) parts.push_back(who.reason());
  return parts.empty() ? name : absl::StrCat(name, " (", absl::StrJoin(parts, ", "), ")");
}

// N if `who` is the entry "and N more" with which the coordinator truncates a list; 0 otherwise.
size_t HiddenBy(const v1::WaitedFor& who) {
  absl::string_view reason = who.reason();
  size_t hidden = 0;
  const bool is_count = !who.has_rank() && who.node().empty() &&
                        absl::ConsumePrefix(&reason, "and ") &&
                        absl::ConsumeSuffix(&reason, " more") && absl::SimpleAtoi(reason, &hidden);
  return is_count ? hidden : 0;
}

}  // namespace

std::string MissingText(const v1::Wait& wait, size_t most_shown) {
  if (wait.missing().empty()) return "nothing";
  size_t named = wait.missing_size();
  size_t hidden = HiddenBy(*wait.missing().rbegin());
  if (hidden > 0) --named;
  const size_t shown = std::min(named, most_shown);
  hidden += named - shown;
  std::vector<std::string> names;
  for (size_t i = 0; i < shown; ++i) names.push_back(WhoText(wait.missing(static_cast<int>(i))));
  std::string text = absl::StrJoin(names, ", ");
  if (hidden > 0) absl::StrAppend(&text, text.empty() ? "" : " and ", hidden, " more");
  return text;
}

std::string WaitText(const v1::Wait& wait, bool timed_out, size_t most_shown) {
  const double seconds = absl::ToDoubleSeconds(FromProto(wait.since()));
  return absl::StrCat(wait.what(), timed_out ? " timed out after " : " has waited ",
                      absl::StrFormat("%.1f s", seconds), timed_out ? ", waiting for " : " for ",
                      MissingText(wait, most_shown));
}

}  // namespace muster
