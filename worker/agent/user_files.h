// Directories and files of the data directory that belong to the user of a job.
//
// Directories of the worker on the way to them have mode 0711: a job can enter those whose names it
// knows, but list and change none. All functions expect that the parent of `path` belongs to the
// worker, so that a job cannot replace what they open.
#ifndef MUSTER_WORKER_AGENT_USER_FILES_H_
#define MUSTER_WORKER_AGENT_USER_FILES_H_

#include <linux/capability.h>
#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "worker/agent/job_user.h"

namespace muster::agent {

// While in scope, the calling thread accesses files as the user does: in directories that a job can
// write to, links that it planted lead nowhere that the job could not go. Other threads, and the
// user whom signals and ptrace see, stay as they are. Does nothing without a user. Not for starting
// processes: they would run as the worker's user. Scopes must not be nested.
class UserRights {
 public:
  explicit UserRights(const std::optional<JobUser>& user);
  ~UserRights();
  UserRights(const UserRights&) = delete;
  UserRights& operator=(const UserRights&) = delete;

  // An error of the system: the scope then has the worker's rights, and must not be used.
  const absl::Status& status() const { return status_; }

 private:
  absl::Status Take(const shim::Credentials& user);
  void Restore();

  absl::Status status_;
  bool taken_ = false;
  uid_t uid_ = 0;
  gid_t gid_ = 0;
  std::vector<gid_t> groups_;
  __user_cap_data_struct capabilities_[_LINUX_CAPABILITY_U32S_3] = {};
};

// Creates the directory of the worker, and lets other users pass through it.
absl::Status MakePassage(const std::string& path);

// Creates the directory with mode 0700 and gives it to the user. An existing one is given to the
// user, too, but not what it contains. FAILED_PRECONDITION if something else has its name.
absl::Status MakeUserDirectory(const std::string& path, const JobUser& user);

// Whether the user can reach the directory, which belongs to them: FAILED_PRECONDITION names the
// first directory on the way that they may not enter.
absl::Status CheckReachable(const std::string& path, const JobUser& user);

// The contents of a regular file in a directory of the user, without following a link at its end.
// Nothing, if it is missing, larger than `max_bytes`, of another kind or, with `uid`, of another
// user.
std::optional<std::string> ReadUserFile(const std::string& path, size_t max_bytes,
                                        std::optional<uid_t> uid);

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_USER_FILES_H_
