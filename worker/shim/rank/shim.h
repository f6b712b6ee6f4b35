// The process between a worker and a rank: the rank's parent, the reaper of all processes that the
// rank forks, and the writer of its logs and exit record. It outlives its worker.
#ifndef MUSTER_WORKER_SHIM_RANK_SHIM_H_
#define MUSTER_WORKER_SHIM_RANK_SHIM_H_

#include <string>
#include <string_view>

#include "common/files/owned_fd.h"
#include "worker/shim/clock.h"
#include "worker/shim/hang/hang_watch.h"
#include "worker/shim/protocol.h"
#include "worker/shim/rank/memory_watch.h"
#include "worker/shim/rank/rank_output.h"
#include "worker/shim/rank/rank_tree.h"
#include "worker/shim/rank/worker_sockets.h"

namespace muster::shim {

// Runs one rank, in a single-threaded epoll loop:
//
//   starting ──exec──> running ──main exits──> ending ──no child left──> exit record written
//       └──exec failed──────────────────────────^
//
// If processes outlive SIGKILL for a while, the shim reports that and keeps waiting for them. At
// the deadline of its lease (see clock.h), the tree is killed without a grace period, which would
// have to lie within the lease: a rank that is only cut off for a while would lose that time.
class Shim {
 public:
  // `control_fd` is the socket of a connected worker, or -1. The current directory of the process
  // must be the rank's directory.
  Shim(Instructions instructions, int control_fd);

  // Returns the shim's exit code once the exit record is on disk.
  int Run();

 private:
  bool SetUp();
  void StartRank();
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
  // Limits the time without a worker where no lease does.
  void AwaitWorker();
  void Finish();
  std::string StateLine();

  const Instructions instructions_;
  HangWatch hang_watch_;
  MemoryWatch memory_watch_;
  Fence fence_;
  OwnedFd epoll_;
  OwnedFd signals_;
  OwnedFd worker_away_timer_;
  OwnedFd note_timer_;
  OwnedFd hang_timer_;
  OwnedFd memory_timer_;
  OwnedFd exec_result_;  // until it is known whether the program runs
  WorkerSockets workers_;
  RankOutput output_;
  RankTree tree_;
  bool unkillable_ = false;
};

}  // namespace muster::shim

#endif  // MUSTER_WORKER_SHIM_RANK_SHIM_H_
