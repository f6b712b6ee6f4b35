// Converts a shim's exit record to the exit information for the coordinator.
#ifndef MUSTER_WORKER_AGENT_GENERATION_EXIT_INFO_H_
#define MUSTER_WORKER_AGENT_GENERATION_EXIT_INFO_H_

#include <sys/types.h>

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "proto/muster/v1/job.pb.h"
#include "worker/shim/protocol.h"

namespace muster::agent {

// No record means that the shim was killed, and its rank with it.
v1::ExitInfo ToExitInfo(const std::optional<shim::ExitRecord>& record);

// Adds the error that a failed program of the user reported in the file at `error_file`, or else
// the traceback at the end of its output. Does not change exits that succeeded or already have a
// failure.
void AddProgramError(const std::string& error_file, v1::ExitInfo& exit,
                     std::optional<uid_t> uid = std::nullopt);

// Adds evidence from the rank's devices (empty: none) if the rank failed and was not stopped.
void AddDeviceEvidence(const std::string& evidence, v1::ExitInfo& exit);

// Exit information of a rank whose process could not be started. FAILED_PRECONDITION is not
// retried.
v1::ExitInfo LaunchFailure(const absl::Status& status);

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_GENERATION_EXIT_INFO_H_
