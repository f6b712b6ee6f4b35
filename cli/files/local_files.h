// The files on this machine that a job needs: those of its spec and the script of its command.
#ifndef MUSTER_CLI_FILES_LOCAL_FILES_H_
#define MUSTER_CLI_FILES_LOCAL_FILES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::cli {

struct LocalFile {
  std::string source;  // absolute path on this machine
  v1::FileSpec spec;   // with its place in the rank's directory and its digest
};

// Expands paths of users, in the order of their places.
class LocalFiles {
 public:
  // Adds the file, or all files below the folder except those in .git and __pycache__. `path` is
  // relative to the absolute path `base`, and so is its place; a path that leads out of `base` is
  // placed by its last name. Reads the files. Errors name the path: NOT_FOUND if it cannot be read;
  // INVALID_ARGUMENT if the files cannot be placed together or exceed limits::kFiles or
  // limits::kFilesBytes.
  absl::Status Add(const std::string& path, const std::string& base);

  // Files by their place in the rank's directory.
  const std::map<std::string, LocalFile>& files() const { return files_; }
  // Paths that were left out of folders, with the reasons.
  const std::vector<std::string>& skipped() const { return skipped_; }

 private:
  absl::Status AddFolder(const std::string& source, const std::string& place);
  absl::Status AddFile(const std::string& source, const std::string& place);

  std::map<std::string, LocalFile> files_;
  std::vector<std::string> skipped_;
  size_t found_ = 0;  // files, including those that had been added before
  uint64_t bytes_ = 0;
};

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

#endif  // MUSTER_CLI_FILES_LOCAL_FILES_H_
