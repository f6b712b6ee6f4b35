// Formats arrays of jobs as text.
#ifndef MUSTER_CLI_TEXT_ARRAY_TEXT_H_
#define MUSTER_CLI_TEXT_ARRAY_TEXT_H_

#include <string>

#include "absl/time/time.h"
#include "nlohmann/json_fwd.hpp"
#include "proto/muster/v1/cluster.pb.h"

namespace muster::cli {

// The text of `muster describe`: one `key: value` per line, then the table of results.
std::string ArrayDescription(const v1::GetArrayResponse& response, bool wide, absl::Time now);

// A row per task: its index, the values in which it differs, its state, loss, accuracy and
// duration; `wide` adds its job and its reason.
std::string ResultsTable(const v1::GetArrayResponse& response, bool wide, absl::Time now);

// The array and its tasks; without the losses of each step.
nlohmann::ordered_json ArrayToJson(const v1::GetArrayResponse& response);

}  // namespace muster::cli

#endif  // MUSTER_CLI_TEXT_ARRAY_TEXT_H_
