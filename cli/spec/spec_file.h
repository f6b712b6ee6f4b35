// Reads job specs from files, and prints them.
#ifndef MUSTER_CLI_SPEC_SPEC_FILE_H_
#define MUSTER_CLI_SPEC_SPEC_FILE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/context.h"
#include "proto/muster/v1/job.pb.h"
#include "spec/spec.h"

namespace muster::cli {

// Contents of a file, or of standard input for `-`. NOT_FOUND if the file cannot be read,
// RESOURCE_EXHAUSTED if it exceeds the size limit of a spec.
absl::StatusOr<std::string> ReadSpecText(const std::string& path);

// Reads and parses a spec, with overrides and without defaults, and lets `amend` change it; `-` is
// standard input. NOT_FOUND if the file cannot be read, otherwise spec::ParseReportingAll's errors.
absl::StatusOr<v1::JobSpec> ReadSpecFile(
    const std::string& path, const std::vector<std::string>& overrides,
    spec::Amendment amend = [](v1::JobSpec&) { return std::vector<absl::Status>(); });

// Prints the spec in the output format: JSON, its name, or `text`, which is YAML.
void PrintSpec(const Context& context, const v1::JobSpec& spec, const std::string& text);

// Exit code for a spec that cannot be used: kExitNoInput or kExitBadSpec.
int SpecExitCode(const absl::Status& status);

}  // namespace muster::cli

#endif  // MUSTER_CLI_SPEC_SPEC_FILE_H_
