// Finds Muster's other programs, installed or as built.
#ifndef MUSTER_COMMON_FIND_PROGRAM_H_
#define MUSTER_COMMON_FIND_PROGRAM_H_

#include <string>

#include "absl/status/statusor.h"

namespace muster {

// Where program `name` is: `given` itself unless it is empty; else beside this program, as where
// they are installed, or in `folder` beside this program's own, as where they are built. NOT_FOUND
// names `flag`, by which it can be given.
absl::StatusOr<std::string> FindProgram(const std::string& given, const std::string& folder,
                                        const std::string& name, const std::string& flag);

}  // namespace muster

#endif  // MUSTER_COMMON_FIND_PROGRAM_H_
