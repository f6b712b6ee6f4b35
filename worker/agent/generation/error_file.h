// What a program itself says of its failure, and what of it can be read from its last lines.
#ifndef MUSTER_WORKER_AGENT_GENERATION_ERROR_FILE_H_
#define MUSTER_WORKER_AGENT_GENERATION_ERROR_FILE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace muster::agent {

struct ProgramError {
  std::string message;    // e.g. "ValueError: no such layer"
  std::string traceback;  // empty when there is none
  // Where it says so: an absl::StatusCode, and the rank that it lost.
  std::optional<int> status_code;
  std::optional<uint32_t> peer_rank;
};

// The file at TORCHELASTIC_ERROR_FILE, as PyTorch's @record writes it: JSON with a `message` that
// is either text or an object of `message` and `extraInfo.py_callstack`, or as //process_group's
// ReportFailure does, with `status_code` and `peer_rank`. Nothing when it is missing, larger than a
// megabyte or anything else: it is the program's.
std::optional<ProgramError> ReadErrorFile(const std::string& path);

// The line that ends the last Python traceback in `lines`; nothing without one.
std::optional<std::string> PythonError(absl::string_view lines);

// Whether an error says that a connection to another rank broke: probably a consequence of that
// rank's end.
bool SaysPeerIsLost(absl::string_view message);

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_GENERATION_ERROR_FILE_H_
