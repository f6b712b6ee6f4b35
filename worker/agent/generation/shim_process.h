// A worker's end of one shim: starting it, finding it again, telling it to stop, learning how it
// ended.
#ifndef MUSTER_WORKER_AGENT_GENERATION_SHIM_PROCESS_H_
#define MUSTER_WORKER_AGENT_GENERATION_SHIM_PROCESS_H_

#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/agent/event_loop.h"
#include "worker/shim/cgroup.h"
#include "worker/shim/protocol.h"

namespace muster::agent {

// On the loop's thread only. Destroying it leaves the shim alone: it waits for the next worker.
class ShimProcess {
 public:
  // Called on the loop, never from within a call of this class. The owner may destroy the
  // ShimProcess in them.
  struct Events {
    // The rank's program runs (an exec that failed ends without this).
    std::function<void(pid_t pid)> on_started;
    // Nothing of the rank is left. Without a record: the shim was lost, and what it left behind has
    // been killed.
    std::function<void(std::optional<shim::ExitRecord> record)> on_ended;
  };

  // Writes the instructions and starts a shim in `directory`, which exists. `token` is an entry of
  // the rank's environment that no other process has: by it the remains of a lost shim are found.
  static absl::StatusOr<std::unique_ptr<ShimProcess>> Start(EventLoop& loop,
                                                            const std::string& shim_binary,
                                                            const std::string& directory,
                                                            const shim::Instructions& instructions,
                                                            std::string token, Events events);
  // Finds the shim that an earlier worker started there, alive, finished or lost.
  static std::unique_ptr<ShimProcess> Adopt(EventLoop& loop, const std::string& directory,
                                            const shim::Instructions& instructions,
                                            std::string token, Events events);
  ~ShimProcess();
  ShimProcess(const ShimProcess&) = delete;
  ShimProcess& operator=(const ShimProcess&) = delete;

  // SIGTERM, then SIGKILL after `grace`. A shorter grace replaces a longer one.
  void Stop(absl::Duration grace);
  // Writes a line to the rank's stderr log, between its own lines. Cut at shim::kMaxNoteBytes.
  void Note(const std::string& line);

 private:
  ShimProcess(EventLoop& loop, std::string directory, std::string cgroup, std::string token,
              Events events);

  void Send(const std::string& line);

  void WatchSocket(int socket);
  void OnReadable();
  void OnLine(const std::string& line);
  // The socket is closed, thus the shim gone: by its own end or by a SIGKILL.
  void OnGone();
  void SweepRemains();

  EventLoop& loop_;
  const std::string directory_;
  const shim::Cgroup cgroup_;
  const std::string token_;
  const Events events_;
  int socket_ = -1;
  std::optional<EventLoop::TimerId> timer_;
  std::string input_;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_GENERATION_SHIM_PROCESS_H_
