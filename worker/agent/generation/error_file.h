// Reads the failure that a program reports, from its error file or the end of its output.
#ifndef MUSTER_WORKER_AGENT_GENERATION_ERROR_FILE_H_
#define MUSTER_WORKER_AGENT_GENERATION_ERROR_FILE_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace muster::agent {

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

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_GENERATION_ERROR_FILE_H_
