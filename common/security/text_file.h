// Reads files that anyone may read, such as certificates.
#ifndef MUSTER_COMMON_SECURITY_TEXT_FILE_H_
#define MUSTER_COMMON_SECURITY_TEXT_FILE_H_

#include <string>

#include "absl/status/statusor.h"

namespace muster::security {

// The whole file. Errors: those of the system, with the path; RESOURCE_EXHAUSTED if it exceeds
// 1 MiB.
absl::StatusOr<std::string> ReadTextFile(const std::string& path);

}  // namespace muster::security

#endif  // MUSTER_COMMON_SECURITY_TEXT_FILE_H_
