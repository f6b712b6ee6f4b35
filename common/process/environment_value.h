// Variables in an environment of NAME=value entries.
#ifndef MUSTER_COMMON_PROCESS_ENVIRONMENT_VALUE_H_
#define MUSTER_COMMON_PROCESS_ENVIRONMENT_VALUE_H_

#include <string>

#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"

namespace muster {

// The value of the variable, which refers to its entry; empty if the variable is not set.
inline absl::string_view EnvironmentValue(absl::Span<const std::string> environment,
                                          absl::string_view name) {
  for (absl::string_view entry : environment) {
    if (absl::ConsumePrefix(&entry, name) && absl::ConsumePrefix(&entry, "=")) return entry;
  }
  return "";
}

}  // namespace muster

#endif  // MUSTER_COMMON_PROCESS_ENVIRONMENT_VALUE_H_
