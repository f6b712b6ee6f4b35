// The files on this machine that a job needs: those of its spec and the script of its command.
#ifndef MUSTER_CLI_FILES_JOB_FILES_H_
#define MUSTER_CLI_FILES_JOB_FILES_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/files/local_files.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::cli {

// Where a job runs.
enum class Place {
  kCluster,      // a script in the current folder is uploaded
  kThisMachine,  // commands run in the current folder unless the spec has a workdir or files
};

// NOT_FOUND if the current folder has been removed.
absl::StatusOr<std::string> CurrentFolder();

// Adds to `files` what must be uploaded before `spec` is submitted, and replaces spec.files by it:
// the spec's files, relative to the folder of `spec_path` (`-` or empty: the current folder); those
// of `more`, relative to the current folder; and the command's script. Files of the spec that have
// a digest were uploaded before and are kept. Sets the workdir of a command that runs in the
// current folder. Errors: those of LocalFiles::Add; INVALID_ARGUMENT if the script cannot be
// uploaded from here.
absl::Status AddJobFiles(const std::string& spec_path, const std::vector<std::string>& more,
                         Place place, v1::JobSpec& spec, LocalFiles& files);

}  // namespace muster::cli

#endif  // MUSTER_CLI_FILES_JOB_FILES_H_
