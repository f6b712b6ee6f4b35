// Rules for the files of a submitted spec. The coordinator applies them to submissions and the
// worker to launches, because the paths become part of paths on the node.
#ifndef MUSTER_SPEC_FILES_H_
#define MUSTER_SPEC_FILES_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::spec {

// Whether `path` names a file below a directory in exactly one way: relative, without empty parts,
// "." and "..", and short enough for every file system.
bool IsFilePath(absl::string_view path);

// Whether `text` is a SHA-256 digest as Sha256Hex prints it.
bool IsSha256(absl::string_view text);

// INVALID_ARGUMENT, naming the path, unless the files can be placed in an empty directory: valid
// and distinct paths, none of them below another, with digests, within limits::kFiles and
// limits::kFilesBytes.
absl::Status CheckUploadedFiles(const v1::JobSpec& spec);

}  // namespace muster::spec

#endif  // MUSTER_SPEC_FILES_H_
