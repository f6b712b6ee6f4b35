// Parses the values of --rank and --since.
#ifndef MUSTER_CLI_LOGS_SELECTION_H_
#define MUSTER_CLI_LOGS_SELECTION_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace muster::cli {

// The ranks in ascending order, without duplicates. INVALID_ARGUMENT names the invalid part.
absl::StatusOr<std::vector<uint32_t>> ParseRankSet(absl::string_view text);

// Parses a duration before `now`, such as 10m, or a time in RFC 3339, such as
// 2026-11-22T10:00:00Z. INVALID_ARGUMENT for anything else.
absl::StatusOr<absl::Time> ParseSince(absl::string_view text, absl::Time now);

}  // namespace muster::cli

#endif  // MUSTER_CLI_LOGS_SELECTION_H_
