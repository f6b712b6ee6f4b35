// Command line options that describe a job, shared by submit, run and local.
#ifndef MUSTER_CLI_SPEC_JOB_OPTIONS_H_
#define MUSTER_CLI_SPEC_JOB_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/files/local_files.h"
#include "cli/verb.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::cli {

// Adds the variables of `files`, then those of `entries`, to the spec's env; later ones override
// earlier ones. A file has lines NAME=VALUE; empty lines and lines that begin with # are skipped.
// An entry is NAME=VALUE, or NAME for this process's value. Errors: NOT_FOUND for a file that
// cannot be read; INVALID_ARGUMENT for a wrong line, or a variable that is not set.
absl::Status AddVariables(const std::vector<std::string>& files,
                          const std::vector<std::string>& entries, v1::JobSpec& spec);

struct JobOptions {
  std::string path;
  std::vector<std::string> overrides;
  std::string name;
  std::optional<int32_t> priority;
  std::optional<uint32_t> nodes;
  std::optional<uint32_t> ranks_per_node;
  std::string launcher;
  std::optional<uint32_t> restarts;
  std::string time_limit;
  std::vector<std::string> files;
  std::string workdir;
  std::vector<std::string> env;
  std::vector<std::string> env_files;
  bool losses = false;
  // Only with AddSchedulingOptions.
  std::string priority_class;
  std::vector<std::string> after;
  std::string array;                // N or N%K
  std::vector<std::string> select;  // LABEL=VALUE
  std::vector<std::string> exclude_nodes;
  bool exclusive = false;
};

// Paragraph for the manual pages of verbs with these options.
inline constexpr char kJobOptionsText[] =
    "FILE is a spec in YAML or JSON; `muster spec init` prints an example. A command after `--` "
    "replaces the spec's command; FILE is then optional. Flags override the file.";

// Paragraph for the manual pages of verbs that upload files.
inline constexpr char kUploadText[] =
    "Each rank of a command runs in a directory of its own, into which the spec's `files`, those "
    "of "
    "--files and the command's script are copied: `python3 train.py` and `./train.sh` work if the "
    "file is in the current folder. With --workdir, ranks run in that directory instead, and "
    "nothing is copied.";

// Adds these options to `verb`; `options` must outlive parsing.
void AddJobOptions(Verb& verb, JobOptions& options);

// Adds the options that only matter on a cluster that others use, too.
void AddSchedulingOptions(Verb& verb, JobOptions& options);

// Adds only --set.
void AddOverrides(Verb& verb, std::vector<std::string>& overrides);

// Adds only FILE and --set, for verbs that do not submit the spec.
void AddSpecOptions(Verb& verb, std::string& path, std::vector<std::string>& overrides,
                    bool required);

// Throws CLI::RequiredError unless a file or a command was given; for a verb's callback.
void RequireJob(const JobOptions& options, const std::vector<std::string>& command);

struct JobToSubmit {
  v1::JobSpec spec;
  LocalFiles files;  // to be uploaded before the spec is submitted
};

// Builds the spec from the file, the options and the command, and validates it as the coordinator
// will; defaults are left to the coordinator. Pass errors to SpecExitCode.
absl::StatusOr<JobToSubmit> MakeJob(const JobOptions& options,
                                    const std::vector<std::string>& command, Place place);

}  // namespace muster::cli

#endif  // MUSTER_CLI_SPEC_JOB_OPTIONS_H_
