// What a program tells its job of the error that it ends with.
#ifndef MUSTER_PROCESS_GROUP_REPORT_FAILURE_H_
#define MUSTER_PROCESS_GROUP_REPORT_FAILURE_H_

#include "absl/status/status.h"

namespace muster {

// Writes `status` to the file that TORCHELASTIC_ERROR_FILE names, where a command job reads it: its
// text becomes the failure's message, and a rank that the status says was lost is taken for the
// cause rather than this one. To be called before the program exits; nothing for an OK status or
// without the variable, and no error of its own. Thread-safe.
void ReportFailure(const absl::Status& status);

}  // namespace muster

#endif  // MUSTER_PROCESS_GROUP_REPORT_FAILURE_H_
