// Command-line options with four sources: a flag overrides the environment variable MUSTER_NAME,
// which overrides the configuration file, which overrides the default.
#ifndef MUSTER_COMMON_FLAGS_FLAGS_H_
#define MUSTER_COMMON_FLAGS_FLAGS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace CLI {
class App;
}

namespace muster::flags {

// Long names of the options that can come from all four sources: all but help and version.
std::vector<std::string> OptionNames(const CLI::App& app);

// "tls-ca" → "MUSTER_TLS_CA".
std::string EnvironmentName(absl::string_view option);

// Path of the user's configuration file: $XDG_CONFIG_HOME/muster/config, or
// $HOME/.config/muster/config; empty if neither variable is set.
std::string UserConfigPath();

// Reads `name=value` lines and returns them as flags: "--coordinator=host:7070". A value may be in
// quotes. Empty lines and lines that begin with '#' or ';' are skipped. INVALID_ARGUMENT names file
// and line of an option that is not in `names`; NOT_FOUND if the file cannot be read.
absl::StatusOr<std::vector<std::string>> ReadConfig(const std::string& path,
                                                    const std::vector<std::string>& names);

// Parses `given` (argv without the program's name) together with options from the environment and
// the configuration file, which is the value of --config, otherwise `default_config`; the latter
// need not exist. With --help, neither environment nor file is read. Empty variables count as
// unset. The values that the file sets for the options `paths` are relative to its folder. Returns
// the errors of ReadConfig; throws CLI::Error as CLI::App::parse does.
absl::Status Parse(CLI::App& app, const std::vector<std::string>& given,
                   const std::string& default_config = "",
                   const std::vector<std::string>& paths = {});

// Parse for daemons: prints help, version and errors as CLI11 does. Returns the exit status, 0 or
// kExitUsage, if the program must exit; -1 otherwise.
int ParseOrExit(CLI::App& app, int argc, const char* const* argv);

}  // namespace muster::flags

#endif  // MUSTER_COMMON_FLAGS_FLAGS_H_
