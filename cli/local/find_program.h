// Muster's other programs, as the command line finds them.
#ifndef MUSTER_CLI_LOCAL_FIND_PROGRAM_H_
#define MUSTER_CLI_LOCAL_FIND_PROGRAM_H_

#include <string>

#include "absl/status/statusor.h"

namespace muster::cli {

// Where program `name` is: `given` itself unless it is empty; else beside this program, as where
// they are installed, or in `folder` beside this program's own, as where they are built. NOT_FOUND
// names `flag`, by which it can be given.
absl::StatusOr<std::string> FindProgram(const std::string& given, const std::string& folder,
                                        const std::string& name, const std::string& flag);

}  // namespace muster::cli

#endif  // MUSTER_CLI_LOCAL_FIND_PROGRAM_H_
