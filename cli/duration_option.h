// Options whose values are durations.
#ifndef MUSTER_CLI_DURATION_OPTION_H_
#define MUSTER_CLI_DURATION_OPTION_H_

#include <string>

#include "CLI/CLI.hpp"
#include "absl/time/time.h"
#include "spec/units.h"

namespace muster::cli {

// Adds an option that accepts durations such as 90s, 10m or 1.5h; other values are usage errors.
// `value`, an absl::Duration or an optional one, must outlive parsing.
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
