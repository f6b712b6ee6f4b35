// Access to files with the rights of a job's user.
#ifndef MUSTER_WORKER_AGENT_USER_RIGHTS_H_
#define MUSTER_WORKER_AGENT_USER_RIGHTS_H_

#include <linux/capability.h>
#include <sys/types.h>

#include <optional>
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

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_USER_RIGHTS_H_
