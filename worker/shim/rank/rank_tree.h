// The processes of a rank, which are all descendants of the shim.
#ifndef MUSTER_WORKER_SHIM_RANK_RANK_TREE_H_
#define MUSTER_WORKER_SHIM_RANK_RANK_TREE_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "common/files/owned_fd.h"
#include "worker/shim/cgroup.h"
#include "worker/shim/protocol.h"

namespace muster::shim {

// Forks, stops, reaps and kills the processes, and records the exit of the main one. A stop sends
// the job's stop signal (or SIGABRT, for the stacks of a hung rank) to the rank's process group.
// After the grace period, or once the group has exited, the remaining processes of the tree receive
// SIGKILL. If the main process exits by itself, its tree is killed at once.
class RankTree {
 public:
  // The instructions must outlive the tree. `on_reaped` receives each child that has ended.
  RankTree(const Instructions& instructions, std::function<void(pid_t pid)> on_reaped);

  // Makes this process the reaper of all descendants. Returns false, with errno set, on failure.
  bool Open();
  // Forks the main process, in the rank's group with its limits. Returns as fork; on failure,
  // SetNotStarted has been called.
  pid_t Fork();
  // Records that the main process could not be started, because `step` failed with errno.
  void SetNotStarted(const std::string& step);

  // The record of the rank's exit. Its pid is 0 if the main process was not started.
  ExitRecord& record() { return record_; }
  bool main_exited() const { return main_exited_; }
  // The rank's group; that with an empty path if it could not be created.
  Cgroup group() const { return Cgroup(cgroup_made_ ? cgroup_.path() : ""); }
  // Readable when OnGraceTimer must be called.
  int grace_timer() const { return grace_timer_.get(); }

  void Reap();
  // Sends `signal` to the rank; a later call only shortens the grace period.
  void Stop(int64_t grace_ms, int signal);
  // The rank's lease has expired: the processes have no grace period.
  void Expire();
  // Ends the grace period. Returns whether it was over, and processes have outlived SIGKILL.
  bool OnGraceTimer();
  // Must be called after each event: kills processes if needed, and returns whether none is left.
  bool Settle();
  // Completes the record, and removes the group.
  void Finish();

 private:
  void EndTree();

  const Instructions& instructions_;
  const std::function<void(pid_t)> on_reaped_;
  const Cgroup cgroup_;
  OwnedFd grace_timer_;
  bool cgroup_made_ = false;
  bool main_exited_ = false;
  bool grace_over_ = false;
  bool kill_sent_ = false;  // grace_timer_ then measures how long the processes outlive SIGKILL
  bool no_children_ = false;
  bool killed_by_us_ = false;
  std::optional<int64_t> stop_deadline_ms_;  // on the monotonic clock, while stopping
  std::optional<uint64_t> oom_kills_before_;
  ExitRecord record_;
};

}  // namespace muster::shim

#endif  // MUSTER_WORKER_SHIM_RANK_RANK_TREE_H_
