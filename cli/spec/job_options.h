// The options by which a job is described on the command line: submit, run, local.
#ifndef MUSTER_CLI_SPEC_JOB_OPTIONS_H_
#define MUSTER_CLI_SPEC_JOB_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/verb.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::cli {

struct JobOptions {
  std::string path;
  std::vector<std::string> overrides;
  std::string name;
  std::optional<int32_t> priority;
  std::optional<uint32_t> nodes;
  std::optional<uint32_t> ranks_per_node;
  bool losses = false;
};

// For the descriptions of verbs with these options.
inline constexpr char kJobOptionsText[] =
    "FILE is a spec in YAML or JSON; `muster spec init` prints one to begin with. A command behind "
    "`--` takes the place of the spec's own; with a command no FILE is needed. Flags overrule the "
    "file.";

// Declares them; `options` outlives the parse.
void AddJobOptions(Verb& verb, JobOptions& options);

// FILE and --set alone, for verbs that only look at a spec.
void AddSpecOptions(Verb& verb, std::string& path, std::vector<std::string>& overrides,
                    bool required);

// For a verb's callback: throws CLI::RequiredError unless there is a file or a command.
void RequireJob(const JobOptions& options, const std::vector<std::string>& command);

// From the file, the options and the command. Checked as the coordinator will check it; defaults
// are left to the coordinator. Errors are for SpecExitCode.
absl::StatusOr<v1::JobSpec> MakeSpec(const JobOptions& options,
                                     const std::vector<std::string>& command);

}  // namespace muster::cli

#endif  // MUSTER_CLI_SPEC_JOB_OPTIONS_H_
