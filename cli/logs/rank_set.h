// Parses sets of ranks such as "0,3-5".
#ifndef MUSTER_CLI_LOGS_RANK_SET_H_
#define MUSTER_CLI_LOGS_RANK_SET_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace muster::cli {

// The ranks in ascending order, without duplicates. INVALID_ARGUMENT names the invalid part.
absl::StatusOr<std::vector<uint32_t>> ParseRankSet(absl::string_view text);

}  // namespace muster::cli

#endif  // MUSTER_CLI_LOGS_RANK_SET_H_
