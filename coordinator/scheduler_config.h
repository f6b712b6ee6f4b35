// The file of --scheduler-config: see docs/operate/scheduler.md.
#ifndef MUSTER_COORDINATOR_SCHEDULER_CONFIG_H_
#define MUSTER_COORDINATOR_SCHEDULER_CONFIG_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "coordinator/core/scheduler/options.h"

namespace muster {

// Parses the text of the file; `source` is its name in errors. Errors: INVALID_ARGUMENT, with the
// name and the line.
absl::StatusOr<core::SchedulerOptions> ParseSchedulerConfig(const std::string& text,
                                                            absl::string_view source);

// Reads and parses the file. Errors: those of ParseSchedulerConfig, NOT_FOUND.
absl::StatusOr<core::SchedulerOptions> ReadSchedulerConfig(const std::string& path);

}  // namespace muster

#endif  // MUSTER_COORDINATOR_SCHEDULER_CONFIG_H_
