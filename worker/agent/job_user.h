// The Unix users as which ranks run (--job-user), where they are not the worker's own.
#ifndef MUSTER_WORKER_AGENT_JOB_USER_H_
#define MUSTER_WORKER_AGENT_JOB_USER_H_

#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "worker/shim/credentials.h"

namespace muster::agent {

struct JobUser {
  std::string name;
  shim::Credentials credentials;  // never root's
  std::string home;
  std::string shell;
};

// Resolves the user of a job. Reads the system's user database, which may be on the network, at
// each call. Thread-safe.
class JobUsers {
 public:
  // The value of --job-user with which each job runs as the Unix user with the name of its owner.
  static constexpr char kOwner[] = "{owner}";

  // All jobs run as the worker's own user.
  JobUsers() = default;
  // `flag` is the value of --job-user: empty, the name of a user, or kOwner. `min_uid` is the
  // smallest uid of an owner's user. Errors, all about --job-user: INVALID_ARGUMENT for an unknown
  // user, root, or the worker's own user; PERMISSION_DENIED if this process may not change its
  // user, or lacks what it needs to serve ranks of another user.
  static absl::StatusOr<JobUsers> Open(std::string flag, uid_t min_uid, std::string node_name);

  // Whether ranks run as another user than the worker.
  bool enabled() const { return !flag_.empty(); }
  // The named user, or, with kOwner, one that owns nothing: whom the data directory must let pass.
  const JobUser& example() const { return example_; }
  // The user of the owner's jobs; nothing if it is the worker's own. FAILED_PRECONDITION, with the
  // names of owner and node, if the owner has no suitable user on this machine.
  absl::StatusOr<std::optional<JobUser>> Of(const std::string& owner) const;

 private:
  JobUsers(std::string flag, uid_t min_uid, std::string node_name)
      : flag_(std::move(flag)), min_uid_(min_uid), node_name_(std::move(node_name)) {}

  std::string flag_;
  uid_t min_uid_ = 0;
  std::string node_name_;
  JobUser example_ = {"nobody", {65534, 65534, {}}, "", ""};
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_JOB_USER_H_
