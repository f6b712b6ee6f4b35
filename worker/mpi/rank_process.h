// The main process of a rank of an MPI program: the parent of the rank's program and, for the first
// rank of a node, of mpirun or of the node's Open MPI daemon.
//
//   shim ── muster-mpi rank ──┬── the rank's program
//                             └── mpirun (node rank 0) or orted (other nodes); first rank only
//                                   └── muster-mpi proxy, one per rank of the node
//
// Open MPI starts a proxy in place of each rank's program. The proxy sends the environment that
// Open MPI made for it to the rank (handover.h), which starts the program with it and returns the
// program's exit to the proxy. So the program has the environment, logs, limits, devices and exit
// code of its rank, as without MPI, and Open MPI connects it.
#ifndef MUSTER_WORKER_MPI_RANK_PROCESS_H_
#define MUSTER_WORKER_MPI_RANK_PROCESS_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/files/owned_fd.h"
#include "common/time/time.h"
#include "worker/mpi/open_mpi.h"

namespace muster::mpi {

struct RankOptions {
  uint32_t local_rank = 0;
  std::vector<std::string> command;  // the rank's program
  Environment environment;           // of the rank
  NodeOptions node;
  bool oversubscribed = false;  // see ProgramEnvironment
  int stop_signal = 15;

  // A process that calls MPI_Abort ends by itself, with its exit code, while Open MPI already ends
  // the others: so much later, they receive SIGTERM.
  absl::Duration abort_delay = absl::Milliseconds(250);
  // Time after that until SIGKILL.
  absl::Duration kill_delay = absl::Seconds(5);
  // Open MPI ends all processes when one fails. A rank that did not fail itself lets the worker
  // stop it for that long, so that the failure of the other rank is the job's. The rank that runs
  // mpirun, which knows the exit code, waits for half of it.
  absl::Duration failure_delay = absl::Seconds(10);
};

// mpirun or orted.
struct OpenMpiDaemon {
  std::string name;  // for errors
  std::vector<std::string> command;
  bool is_mpirun = false;
};

// How the rank ends.
struct RankEnd {
  int exit_code = 0;  // meaningful when signal is 0
  int signal = 0;
  std::string error;  // that the program does not report itself; empty: none
};

// Must be used on one thread, the main thread, which has children of this object only.
class RankProcess {
 public:
  // Listens for the proxy. Errors of errno.
  static absl::StatusOr<std::unique_ptr<RankProcess>> Create(RankOptions options);
  RankProcess(const RankProcess&) = delete;
  RankProcess& operator=(const RankProcess&) = delete;

  // Starts the daemon, if any, and the program, and waits for their end. Takes over the signals of
  // the process: the stop signal, which reaches the program, too, does not end this process.
  RankEnd Run(const std::optional<OpenMpiDaemon>& daemon);

 private:
  struct Child {
    pid_t pid = 0;              // 0: not started
    std::optional<int> status;  // of waitpid, once it has ended
    SteadyTime ended;

    bool runs() const { return pid != 0 && !status.has_value(); }
    void SetEnded(int wait_status);
  };

  explicit RankProcess(RankOptions options) : options_(std::move(options)) {}

  bool OpenSignals();
  void Wait(absl::Duration most);
  void ReadSignals();
  void Reap();
  void Accept();
  void ReadProxy();
  // Ends the program in steps, once Open MPI has asked for its end.
  void EndProgramIfDue();
  // How the rank ends; nothing while that is undecided.
  std::optional<RankEnd> End() const;
  // As End, for a rank whose own program did not fail but whose daemon did, at `since`.
  std::optional<RankEnd> EndAfter(SteadyTime since, const RankEnd& end) const;
  RankEnd DaemonFailure(const std::string& consequence) const;
  // Whether the program was ended by Open MPI, not by itself.
  bool EndedByOpenMpi() const;

  const RankOptions options_;
  OwnedFd listener_;  // until the proxy has connected
  OwnedFd proxy_;
  OwnedFd signals_;
  bool stopping_ = false;  // the worker stops the rank

  std::optional<OpenMpiDaemon> daemon_;
  Child daemon_process_;
  Child program_;
  std::string program_error_;             // why it could not be started
  std::optional<SteadyTime> ends_since_;  // Open MPI asks for its end
  bool terminated_ = false;               // SIGTERM was sent because of that
  bool killed_ = false;                   // SIGKILL was
};

}  // namespace muster::mpi

#endif  // MUSTER_WORKER_MPI_RANK_PROCESS_H_
