// Environment variables that are given on the command line.
#ifndef MUSTER_CLI_SPEC_JOB_ENV_H_
#define MUSTER_CLI_SPEC_JOB_ENV_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::cli {

// Adds the variables of `files`, then those of `entries`, to the spec's env; later ones override
// earlier ones. A file has lines NAME=VALUE; empty lines and lines that begin with # are skipped.
// An entry is NAME=VALUE, or NAME for this process's value. Errors: NOT_FOUND for a file that
// cannot be read; INVALID_ARGUMENT for a wrong line, or a variable that is not set.
absl::Status AddVariables(const std::vector<std::string>& files,
                          const std::vector<std::string>& entries, v1::JobSpec& spec);

}  // namespace muster::cli

#endif  // MUSTER_CLI_SPEC_JOB_ENV_H_
