// Command line options that describe a job, shared by submit, run and local.
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

// Paragraph for the manual pages of verbs with these options.
inline constexpr char kJobOptionsText[] =
    "FILE is a spec in YAML or JSON; `muster spec init` prints an example. A command after `--` "
    "replaces the spec's command; FILE is then optional. Flags override the file.";

// Adds these options to `verb`; `options` must outlive parsing.
void AddJobOptions(Verb& verb, JobOptions& options);

// Adds only FILE and --set, for verbs that do not submit the spec.
void AddSpecOptions(Verb& verb, std::string& path, std::vector<std::string>& overrides,
                    bool required);

// Throws CLI::RequiredError unless a file or a command was given; for a verb's callback.
void RequireJob(const JobOptions& options, const std::vector<std::string>& command);

// Builds the spec from the file, the options and the command, and validates it as the coordinator
// will; defaults are left to the coordinator. Pass errors to SpecExitCode.
absl::StatusOr<v1::JobSpec> MakeSpec(const JobOptions& options,
                                     const std::vector<std::string>& command);

}  // namespace muster::cli

#endif  // MUSTER_CLI_SPEC_JOB_OPTIONS_H_
