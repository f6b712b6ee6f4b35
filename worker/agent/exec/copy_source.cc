#include "worker/agent/exec/copy_source.h"

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/status.h"
#include "proto/muster/v1/worker.pb.h"
#include "worker/agent/user_files.h"

namespace muster::agent {
namespace {

std::optional<std::string> RealPath(const std::string& path) {
  char resolved[PATH_MAX];
  if (realpath(path.c_str(), resolved) == nullptr) return std::nullopt;
  return std::string(resolved);
}

// The directories with the job's checkpoints; some may be empty.
std::vector<std::string> CheckpointDirs(const v1::Launch& launch, const DataDirectory& directory,
                                        const v1::ReadFilesRequest& request,
                                        const std::string& node_name) {
  return {directory.Checkpoint(request.job_id()), launch.checkpoint_dir(),
          launch.spec().checkpoint_dir(),
          absl::StrReplaceAll(launch.spec().train().checkpoint().dir(), {{"{node}", node_name}})};
}

bool IsWithin(const std::string& path, const std::string& root) {
  return path == root || absl::StartsWith(path, root == "/" ? root : root + "/");
}

}  // namespace

absl::StatusOr<CopySource> ResolveCopySource(const v1::ReadFilesRequest& request,
                                             const DataDirectory& directory,
                                             const std::string& node_name, const JobUsers& users) {
  RETURN_IF_ERROR(CheckJobId(request.job_id()));
  // Empty if an older worker ran the job.
  v1::Launch launch;
  const absl::Status read = ReadMessage(directory.NewestLaunchFile(request.job_id()), launch);
  if (!read.ok() && !absl::IsNotFound(read)) return read;
  ASSIGN_OR_RETURN(const std::optional<JobUser> user, users.Of(launch.owner()));
  const UserRights rights(user);
  RETURN_IF_ERROR(rights.status());
  std::string work = launch.spec().workdir();
  if (work.empty()) work = directory.Work(request.job_id(), request.rank());
  std::vector<std::string> roots = {work};
  for (const std::string& checkpoints : CheckpointDirs(launch, directory, request, node_name)) {
    if (!checkpoints.empty()) roots.push_back(checkpoints);
  }

  const std::string& asked = request.path();
  const std::string path = absl::StartsWith(asked, "/") ? asked : absl::StrCat(work, "/", asked);
  const std::optional<std::string> real = RealPath(path);
  if (!real.has_value()) {
    const int error = errno;
    if (!RealPath(work).has_value() && errno == ENOENT) {
      return absl::NotFoundError(
          absl::StrCat("node ", node_name, ": ", path, ": working directory ", work,
                       " does not exist; it is deleted some time after the job's end "
                       "(--keep-logs of the worker)"));
    }
    const std::string text =
        absl::StrCat("node ", node_name, ": ", path, ": ", std::strerror(error));
    // Not PERMISSION_DENIED: another token would not help.
    return error == ENOENT || error == ENOTDIR ? absl::NotFoundError(text)
                                               : absl::FailedPreconditionError(text);
  }
  for (const std::string& root : roots) {
    const std::optional<std::string> real_root = RealPath(root);
    if (!real_root.has_value() || !IsWithin(*real, *real_root)) continue;
    const size_t slash = real->rfind('/');
    if (*real == "/") return CopySource{"/", ".", user};
    return CopySource{slash == 0 ? "/" : real->substr(0, slash), real->substr(slash + 1), user};
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "node ", node_name, ": ", *real, " is outside of ", absl::StrJoin(roots, " and ")));
}

}  // namespace muster::agent
