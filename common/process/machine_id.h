// Identity of the machine that a worker runs on.
#ifndef MUSTER_COMMON_PROCESS_MACHINE_ID_H_
#define MUSTER_COMMON_PROCESS_MACHINE_ID_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace muster {

// Files that identify a Linux machine or its boot, the best first.
std::vector<std::string> MachineIdFiles();

// Returns the id in the first of `files` that has one. If there is none, returns the id in `own`,
// which is drawn and stored there if the file does not exist. Errors: system errors with the path.
absl::StatusOr<std::string> FindMachineId(const std::vector<std::string>& files,
                                          const std::string& own);

// Returns the id of this boot of the machine; empty if it is unknown.
std::string BootId();

}  // namespace muster

#endif  // MUSTER_COMMON_PROCESS_MACHINE_ID_H_
