// Reports a program's error to its job.
#ifndef MUSTER_PROCESS_GROUP_REPORT_FAILURE_H_
#define MUSTER_PROCESS_GROUP_REPORT_FAILURE_H_

#include "absl/status/status.h"

namespace muster {

// Writes `status` to the file named by TORCHELASTIC_ERROR_FILE, which a command job reads: the
// message becomes the failure's message, and a rank that the status names as lost is taken as the
// cause instead of this one. Call it before the program exits. Does nothing for an OK status or
// without the variable, and ignores errors of its own. Thread-safe.
void ReportFailure(const absl::Status& status);

}  // namespace muster

#endif  // MUSTER_PROCESS_GROUP_REPORT_FAILURE_H_
