// Sends files to the coordinator.
#ifndef MUSTER_CLI_FILES_UPLOAD_H_
#define MUSTER_CLI_FILES_UPLOAD_H_

#include "absl/status/status.h"
#include "cli/client.h"
#include "cli/files/local_files.h"
#include "cli/output/console.h"

namespace muster::cli {

// Uploads the files that the coordinator does not have yet, and prints a note about them. Errors:
// those of ClusterClient; ABORTED if a file has changed since it was added to `files`.
absl::Status UploadFiles(const LocalFiles& files, ClusterClient& client, Console& console);

}  // namespace muster::cli

#endif  // MUSTER_CLI_FILES_UPLOAD_H_
