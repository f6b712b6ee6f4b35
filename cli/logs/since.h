// Parses the value of --since.
#ifndef MUSTER_CLI_LOGS_SINCE_H_
#define MUSTER_CLI_LOGS_SINCE_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace muster::cli {

// Parses a duration before `now`, such as 10m, or a time in RFC 3339, such as
// 2026-11-22T10:00:00Z. INVALID_ARGUMENT for anything else.
absl::StatusOr<absl::Time> ParseSince(absl::string_view text, absl::Time now);

}  // namespace muster::cli

#endif  // MUSTER_CLI_LOGS_SINCE_H_
