// The ranks that a user names: "0,3-5".
#ifndef MUSTER_CLI_LOGS_RANK_SET_H_
#define MUSTER_CLI_LOGS_RANK_SET_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace muster::cli {

// In rising order, each once. INVALID_ARGUMENT names the part that is wrong.
absl::StatusOr<std::vector<uint32_t>> ParseRankSet(absl::string_view text);

}  // namespace muster::cli

#endif  // MUSTER_CLI_LOGS_RANK_SET_H_
