// From a shim's exit record to what the coordinator is told.
#ifndef MUSTER_WORKER_AGENT_GENERATION_EXIT_INFO_H_
#define MUSTER_WORKER_AGENT_GENERATION_EXIT_INFO_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/muster/v1/job.pb.h"
#include "worker/shim/protocol.h"

namespace muster::agent {

// Without a record: the shim was killed, and its rank with it.
v1::ExitInfo ToExitInfo(const std::optional<shim::ExitRecord>& record);

// Adds what a program that failed said of it: in the file at `error_file`, else by a traceback at
// the end of its stderr. Leaves an exit alone that succeeded or has a failure.
void AddProgramError(const std::string& error_file, v1::ExitInfo& exit);

// Adds what the devices that the rank ran on have to say (empty: nothing), if it failed and was not
// told to end.
void AddDeviceEvidence(const std::string& evidence, v1::ExitInfo& exit);

// Of a rank whose process could not be started at all. FAILED_PRECONDITION is not tried again.
v1::ExitInfo LaunchFailure(const absl::Status& status);

// The same text with '?' for each byte that is not part of valid UTF-8, as protobuf wants its
// strings.
std::string ToUtf8(absl::string_view bytes);

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_GENERATION_EXIT_INFO_H_
