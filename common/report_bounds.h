// Brings the messages that ranks report within common/limits.h. The worker does so before it stores
// or sends a report; the coordinator does it again, so that no report can end a node's session.
#ifndef MUSTER_COMMON_REPORT_BOUNDS_H_
#define MUSTER_COMMON_REPORT_BOUNDS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/repeated_field.h"
#include "proto/muster/v1/job.pb.h"
#include "proto/muster/v1/worker.pb.h"

namespace muster {

// A field that was out of bounds.
struct Correction {
  absl::string_view field;  // a constant, such as "progress.time_left"
  std::string problem;      // the field, its value, the limit, and what was done about it
  // The job and rank that receive a warning, where the report itself has no place for one.
  std::string job_id = {};  // empty: none
  std::optional<uint32_t> rank = std::nullopt;
};
using Corrections = std::vector<Correction>;

// Truncates texts and lists, drops invalid times and numbers, and adds a warning to the report for
// each field that it changed, unless the report has a warning about that field.
Corrections Clamp(v1::RankReport& report);
// Adds a warning, truncated, unless it is empty, repeated, or one more than a report may have.
// Returns whether it was added.
bool AddWarning(std::string text, v1::RankReport& report);

// ---- Corrections of single fields; `field` must be a constant.
// Truncates the text at a character boundary.
void Truncate(absl::string_view field, size_t limit_bytes, std::string& text,
              Corrections& corrections);
// Drops the entries of a list beyond the limit.
template <typename List>
void KeepEntries(absl::string_view field, size_t limit, List& list, Corrections& corrections) {
  const int most = static_cast<int>(limit);
  if (list.size() <= most) return;
  corrections.push_back({field, absl::StrCat(field, " has ", list.size(),
                                             " entries; only the first ", limit, " are kept")});
  while (list.size() > most) list.RemoveLast();
}
// Drops a duration that is negative or longer than ten years.
void DropUnlikely(absl::string_view field, const google::protobuf::Duration& duration,
                  const std::function<void()>& drop, Corrections& corrections);

// ---- Checks of single fields of requests. INVALID_ARGUMENT names `what`, its size and the limit,
// or the invalid time.
absl::Status CheckLength(absl::string_view what, size_t length, size_t bound);
absl::Status CheckCount(absl::string_view what, int count, size_t bound);
absl::Status CheckTime(absl::string_view what, const google::protobuf::Duration& duration);
absl::Status CheckBounds(const v1::LeaseQuestion& question);

}  // namespace muster

#endif  // MUSTER_COMMON_REPORT_BOUNDS_H_
