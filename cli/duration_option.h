// Durations as options.
#ifndef MUSTER_CLI_DURATION_OPTION_H_
#define MUSTER_CLI_DURATION_OPTION_H_

#include <string>

#include "CLI/CLI.hpp"
#include "absl/time/time.h"
#include "spec/units.h"

namespace muster::cli {

// `name` takes 90s, 10m, 1.5h; anything else is a usage error. `value`, an absl::Duration or an
// optional one, outlives the parse.
template <typename Value>
CLI::Option* AddDurationOption(CLI::App& app, const std::string& name, Value& value,
                               const std::string& description) {
  return app
      .add_option_function<std::string>(
          name, [&value](const std::string& text) { value = *spec::ParseDuration(text); },
          description)
      ->type_name("DURATION")
      ->check([](const std::string& text) {
        return std::string(spec::ParseDuration(text).status().message());
      });
}

}  // namespace muster::cli

#endif  // MUSTER_CLI_DURATION_OPTION_H_
