// Specs from files.
#ifndef MUSTER_CLI_SPEC_SPEC_FILE_H_
#define MUSTER_CLI_SPEC_SPEC_FILE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::cli {

// A file as it is, `-` for standard input. NOT_FOUND when it cannot be read, RESOURCE_EXHAUSTED
// when it is longer than a spec may be.
absl::StatusOr<std::string> ReadSpecText(const std::string& path);

// Parsed, with overrides, without defaults. `-` is standard input. NOT_FOUND for a file that cannot
// be read, otherwise spec::Parse's errors.
absl::StatusOr<v1::JobSpec> ReadSpecFile(const std::string& path,
                                         const std::vector<std::string>& overrides);

// What to exit with when a spec cannot be used: no input, or a bad spec.
int SpecExitCode(const absl::Status& status);

}  // namespace muster::cli

#endif  // MUSTER_CLI_SPEC_SPEC_FILE_H_
