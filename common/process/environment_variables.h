// Environment variables that Muster's programs and builds read and that belong to no option: the
// source of a table in docs/reference/environment.md. The variables that a worker sets for its
// ranks are in worker/agent/generation/environment.h.
#ifndef MUSTER_COMMON_PROCESS_ENVIRONMENT_VARIABLES_H_
#define MUSTER_COMMON_PROCESS_ENVIRONMENT_VARIABLES_H_

#include "absl/types/span.h"

namespace muster {

struct EnvironmentVariable {
  const char* name;
  const char* programs;  // programs that read it
  const char* meaning;   // in Markdown
};

// Variables that Muster's programs read.
absl::Span<const EnvironmentVariable> ProgramVariables();

// Variables that builds, `deploy/quickstart.sh` and `tests/run.sh` read.
absl::Span<const EnvironmentVariable> BuildVariables();

}  // namespace muster

#endif  // MUSTER_COMMON_PROCESS_ENVIRONMENT_VARIABLES_H_
