// The worker's side of one shim: starts, adopts and stops it, and reports its end.
#ifndef MUSTER_WORKER_AGENT_GENERATION_RANKS_SHIM_PROCESS_H_
#define MUSTER_WORKER_AGENT_GENERATION_RANKS_SHIM_PROCESS_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/files/owned_fd.h"
#include "common/time/time.h"
#include "worker/agent/event_loop.h"
#include "worker/agent/generation/ranks/shim_line.h"
#include "worker/shim/cgroup.h"
#include "worker/shim/log/lost_output.h"
#include "worker/shim/protocol.h"

namespace muster::agent {

// The token that authenticates a rank to its worker. It is an entry of the rank's environment.

inline constexpr char kTokenVariable[] = "MUSTER_RANK_TOKEN=";

// The token in the environment of a started rank; empty if there is none.
std::string TokenIn(const shim::Instructions& instructions);

// The entry (NAME=value) of the environment of the rank's shim and companions, by which they are
// found when the shim is lost: see worker/shim/process_tree.h. Without a mark it is the rank's
// token, which all processes of the rank have that keep their environment.
std::string ShimEntry(const shim::Instructions& instructions);

// Compares in constant time. False for empty tokens.
bool SameToken(const std::string& a, const std::string& b);

// Must be used on the loop's thread. The destructor does not stop the shim, which waits for the
// next worker.
class ShimProcess {
 public:
  // Called on the loop, never from within a method of this class. The owner may destroy the
  // ShimProcess in them.
  struct Events {
    // The rank's program runs. Not called if exec fails.
    std::function<void(pid_t pid)> on_started;
    // No process of the rank is left, and none of its companions. Without a record, the shim was
    // lost and its remaining processes have been killed.
    std::function<void(std::optional<shim::ExitRecord> record)> on_ended;
    // The rank has been silent for this long, or, if zero, is active again.
    std::function<void(absl::Duration silence)> on_silence = [](absl::Duration) {};
    // The memory of the rank's processes has changed noticeably.
    std::function<void(uint64_t bytes)> on_memory = [](uint64_t) {};
    // Processes of the rank outlive SIGKILL: `survivor`, unless it is 0. on_ended follows if they
    // end after all.
    std::function<void(pid_t survivor)> on_unkillable = [](pid_t) {};
    // The answer to Inspect; nothing if the inspection failed.
    std::function<void(std::optional<shim::Inspection> inspection)> on_inspected =
        [](std::optional<shim::Inspection>) {};
    // The log of this stream exceeds its limit, and its oldest or newest output is dropped.
    std::function<void(const std::string& stream, const std::string& dropped)> on_log_limit =
        [](const std::string&, const std::string&) {};
    // The logs lack output that could not be written. The exit record has the final numbers.
    std::function<void(const shim::LostOutput& lost)> on_lost_output = [](const shim::LostOutput&) {
    };
  };

  // Writes the instructions and starts a shim in `directory`, which must exist. `secrets` are
  // further entries of the rank's environment, which are not written.
  static absl::StatusOr<std::unique_ptr<ShimProcess>> Start(EventLoop& loop,
                                                            const std::string& shim_binary,
                                                            const std::string& directory,
                                                            const shim::Instructions& instructions,
                                                            const std::vector<std::string>& secrets,
                                                            Events events);
  // Adopts the shim that an earlier worker started there, whether it is alive, finished or lost.
  static std::unique_ptr<ShimProcess> Adopt(EventLoop& loop, const std::string& directory,
                                            const shim::Instructions& instructions, Events events);
  ~ShimProcess();
  ShimProcess(const ShimProcess&) = delete;
  ShimProcess& operator=(const ShimProcess&) = delete;

  // Sends the job's stop signal, then SIGKILL after `grace`. A shorter grace period replaces a
  // longer one.
  void Stop(absl::Duration grace);
  // Stops with SIGABRT in place of the stop signal.
  void Abort(absl::Duration grace);
  // Writes a line to the log of the rank's stderr, between its own lines; truncated at
  // shim::kMaxNoteBytes.
  void Note(const std::string& line);
  // Replaces the deadline of the rank's lease; see ShimLine.
  void SetLeaseDeadline(int64_t boot_ms) { line_->SetLeaseDeadline(boot_ms); }
  const std::shared_ptr<ShimLine>& line() const { return line_; }
  // The rank reported progress.
  void MarkActive() { Send("active"); }
  // Calls on_inspected within ten seconds. Without effect if hangs are not detected.
  void Inspect() { Send("inspect"); }

 private:
  ShimProcess(EventLoop& loop, std::string directory, const shim::Instructions& instructions,
              Events events);

  // See ShimLine.
  void Send(const std::string& line, bool essential = false);
  // Schedules sending the output that the socket has not accepted.
  void FlushLater();

  void WatchSocket(OwnedFd socket);
  void CloseSocket();
  void OnReadable();
  void OnLine(const std::string& line);
  void OnInspected();
  // The socket was closed: the shim has exited or was killed.
  void OnGone();
  // Kills the processes that the shim did not: those of a lost shim, and companions.
  void SweepRemains();
  void End();

  EventLoop& loop_;
  const std::string directory_;
  const shim::Cgroup cgroup_;
  const uint64_t mark_;
  const std::string entry_;  // see ShimEntry
  const Events events_;
  OwnedFd socket_;
  std::optional<EventLoop::TimerId> timer_;
  std::optional<EventLoop::TimerId> flush_timer_;
  std::optional<shim::ExitRecord> record_;
  std::optional<SteadyTime> sweeping_since_;
  bool unkillable_ = false;  // reported while sweeping
  std::string input_;
  const std::shared_ptr<ShimLine> line_ = std::make_shared<ShimLine>();
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_GENERATION_RANKS_SHIM_PROCESS_H_
