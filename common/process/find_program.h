// Locates Muster's other programs, both in an installation and in a build tree.
#ifndef MUSTER_COMMON_PROCESS_FIND_PROGRAM_H_
#define MUSTER_COMMON_PROCESS_FIND_PROGRAM_H_

#include <string>

#include "absl/status/statusor.h"

namespace muster {

// The path of program `name`: `given` unless it is empty; otherwise `name` in the folder of this
// program (installed), or in `folder` next to that folder (build tree). NOT_FOUND names `flag`, the
// flag that sets the path.
absl::StatusOr<std::string> FindProgram(const std::string& given, const std::string& folder,
                                        const std::string& name, const std::string& flag);

}  // namespace muster

#endif  // MUSTER_COMMON_PROCESS_FIND_PROGRAM_H_
