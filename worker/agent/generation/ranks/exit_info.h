// How a rank ended: its shim's exit record and the error that its program reported, for the
// coordinator.
#ifndef MUSTER_WORKER_AGENT_GENERATION_RANKS_EXIT_INFO_H_
#define MUSTER_WORKER_AGENT_GENERATION_RANKS_EXIT_INFO_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/muster/v1/job.pb.h"
#include "worker/shim/protocol.h"

namespace muster::agent {

// Reads the failure that a program reports, from its error file or the end of its output.
struct ProgramError {
  std::string message;    // e.g. "ValueError: no such layer"
  std::string traceback;  // empty if there is none
  // An absl::StatusCode and the rank that was lost, if reported.
  std::optional<int> status_code;
  std::optional<uint32_t> peer_rank;
};

// Reads the file at TORCHELASTIC_ERROR_FILE as PyTorch's @record writes it (JSON with a `message`
// that is either text or an object of `message` and `extraInfo.py_callstack`), or as ReportFailure
// of //process_group does, with `status_code` and `peer_rank`. Returns nothing if the file is
// missing, larger than 64 MiB, of another user than `uid`, or has another format or more than
// 10,000 values.
std::optional<ProgramError> ReadErrorFile(const std::string& path,
                                          std::optional<uid_t> uid = std::nullopt);

// The last line of the last Python traceback in `lines`, which may lack its beginning; nothing if
// there is none.
std::optional<std::string> PythonError(absl::string_view lines);

// Whether the message is about a broken connection to another rank, which is probably a consequence
// of that rank's end.
bool IsPeerLostMessage(absl::string_view message);

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

#endif  // MUSTER_WORKER_AGENT_GENERATION_RANKS_EXIT_INFO_H_
