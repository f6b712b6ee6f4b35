// Stops ranks without a request of the coordinator: at shutdown, and when the coordinator is lost.
#ifndef MUSTER_WORKER_AGENT_GENERATION_WORKER_STOPS_H_
#define MUSTER_WORKER_AGENT_GENERATION_WORKER_STOPS_H_

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "worker/agent/event_loop.h"
#include "worker/agent/generation/generation.h"

namespace muster::agent {

// Must be used on the loop's thread.
class WorkerStops {
 public:
  // Loop and generations must outlive the object.
  WorkerStops(EventLoop& loop, const Generations& generations)
      : loop_(loop), generations_(generations) {}
  ~WorkerStops();
  WorkerStops(const WorkerStops&) = delete;
  WorkerStops& operator=(const WorkerStops&) = delete;

  // The coordinator is lost: jobs whose spec requires it are stopped after a while unless
  // OnCoordinatorConnected is called.
  void OnCoordinatorLost();
  void OnCoordinatorConnected();

  // Stops all ranks with their jobs' grace periods or the given one; calls `done` when none is
  // left. A second call with a shorter grace period shortens the first.
  void StopAll(std::optional<absl::Duration> grace, std::function<void()> done);
  // Calls `done` when the coordinator has stopped all ranks or they have ended. Ranks that are not
  // being stopped after `patience` are stopped as by StopAll.
  void AwaitEnd(absl::Duration patience, std::function<void()> done);
  // StopAll or AwaitEnd has been called: no more ranks may be started.
  bool stopping() const { return stopping_; }
  // Call it whenever a generation may have become settled, but not from within its methods.
  void CheckAllStopped();

 private:
  void PostCheck();

  EventLoop& loop_;
  const Generations& generations_;
  std::vector<EventLoop::TimerId> away_timers_;
  bool coordinator_away_ = false;
  bool stopping_ = false;
  std::optional<EventLoop::TimerId> patience_timer_;
  std::function<void()> on_all_stopped_;
  // For closures that outlive this object.
  const std::shared_ptr<WorkerStops*> self_ = std::make_shared<WorkerStops*>(this);
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_GENERATION_WORKER_STOPS_H_
