// The user's configuration file: options of the program, one `name=value` a line.
#ifndef MUSTER_CLI_CONFIG_H_
#define MUSTER_CLI_CONFIG_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace muster::cli {

// $XDG_CONFIG_HOME/muster/config, or ~/.config/muster/config; empty where there is neither.
std::string DefaultConfigPath();

// The options of the file, as flags: "--coordinator=host:7070". Empty lines and those that begin
// with '#' are passed over. INVALID_ARGUMENT names file and line of whatever is none of `names`;
// NOT_FOUND when the file cannot be read.
absl::StatusOr<std::vector<std::string>> ReadConfig(const std::string& path,
                                                    const std::vector<std::string>& names);

}  // namespace muster::cli

#endif  // MUSTER_CLI_CONFIG_H_
