// The process between a worker and a rank: the rank's parent, the reaper of all processes that the
// rank forks, and the writer of its logs and exit record. It outlives its worker.
#ifndef MUSTER_WORKER_SHIM_RANK_SHIM_H_
#define MUSTER_WORKER_SHIM_RANK_SHIM_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "worker/shim/cgroup.h"
#include "worker/shim/clock.h"
#include "worker/shim/hang/hang_watch.h"
#include "worker/shim/protocol.h"
#include "worker/shim/rank/memory_watch.h"
#include "worker/shim/rank/rank_output.h"
#include "worker/shim/rank/worker_sockets.h"

namespace muster::shim {

// Runs one rank, in a single-threaded epoll loop:
//
//   starting ──exec──> running ──main exits──> ending ──no child left──> exit record written
//       └──exec failed──────────────────────────^
//
// A stop sends the job's stop signal (or SIGABRT, for the stacks of a hung rank) to the rank's
// process group.
// After the grace period, or once the group has exited, the remaining processes of the tree receive
// SIGKILL. If the main process exits by itself, its tree is killed at once. If processes outlive
// SIGKILL for a while, the shim reports that and keeps waiting for them. At the deadline of its
// lease (see clock.h), the tree is killed without a grace period, which would have to lie within
// the lease: a rank that is only cut off for a while would lose that time.
class Shim {
 public:
  // `control_fd` is the socket of a connected worker, or -1. The current directory of the process
  // must be the rank's directory.
  Shim(Instructions instructions, int control_fd);
  ~Shim();
  Shim(const Shim&) = delete;
  Shim& operator=(const Shim&) = delete;

  // Returns the shim's exit code once the exit record is on disk.
  int Run();

 private:
  bool SetUp();
  void StartRank();
  pid_t Fork();
  [[noreturn]] void BecomeRank(int out, int err, int report);
  bool Watch(int fd);
  void Dispatch(int fd);

  // Executes a worker's command; returns the answer.
  std::string_view Execute(std::string_view command);
  // The lines for a worker that has just connected.
  std::string State();
  WorkerSockets::Events WorkerEvents();
  RankOutput::Events OutputEvents();

  void ReadSignals();
  void ReadExecResult();
  void Reap();
  void Stop(int64_t grace_ms, int signal);
  // Limits the time without a worker where no lease does.
  void AwaitWorker();
  void OnWorkerAwayTooLong();
  void OnLeaseDeadline();
  // Called after each event: kills processes if needed, and returns whether no process is left.
  bool Settle();
  void EndTree();
  void OnUnkillable();
  void Finish();
  std::string StateLine() const;

  const Instructions instructions_;
  const Cgroup cgroup_;
  HangWatch hang_watch_;
  MemoryWatch memory_watch_;
  Fence fence_;
  int epoll_ = -1;
  int signals_ = -1;
  int grace_timer_ = -1;
  int worker_away_timer_ = -1;
  int note_timer_ = -1;
  int hang_timer_ = -1;
  int memory_timer_ = -1;
  int exec_result_ = -1;
  WorkerSockets workers_;
  RankOutput output_;

  pid_t pid_ = -1;
  bool cgroup_made_ = false;
  bool limited_ = true;  // instructions_.limits are in force
  bool exec_known_ = false;
  bool main_exited_ = false;
  bool grace_over_ = false;
  bool kill_sent_ = false;  // grace_timer_ then measures how long the processes outlive SIGKILL
  bool unkillable_ = false;
  bool no_children_ = false;
  bool killed_by_us_ = false;
  std::optional<int64_t> stop_deadline_ms_;  // on the monotonic clock, while stopping
  std::optional<uint64_t> oom_kills_before_;
  ExitRecord record_;
};

}  // namespace muster::shim

#endif  // MUSTER_WORKER_SHIM_RANK_SHIM_H_
