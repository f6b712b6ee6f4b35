// A coordinator process around the real core: a disk that survives it, commits that take time,
// effects that leave only after their commit, and crashes between any of these.
#ifndef MUSTER_TESTS_SIMULATION_COORDINATOR_H_
#define MUSTER_TESTS_SIMULATION_COORDINATOR_H_

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "coordinator/core/core.h"
#include "coordinator/core/event.h"
#include "tests/simulation/world.h"

namespace muster::simulation {

class Coordinator {
 public:
  explicit Coordinator(World& world) : world_(world) {}

  bool up() const { return core_ != nullptr; }
  core::Core* core() { return core_.get(); }

  void Start();
  // Ends the process. Some of the steps not yet committed reach the disk and the others do not;
  // effects that wait for them are lost.
  void Crash();
  // Handles no events for a while, as if the process were stopped.
  void Pause(absl::Duration by) {
    paused_until_ = std::max(paused_until_, world_.scheduler.now().steady + by);
  }

  // Opens a worker's stream with its Hello.
  void Open(const std::shared_ptr<Stream>& stream, const v1::Hello& hello,
            std::function<void(const v1::CoordinatorMessage&)> deliver,
            std::function<void(const absl::Status&)> closed);
  void Receive(const std::shared_ptr<Stream>& stream, const v1::WorkerMessage& message);
  // Sends a client's request; `event` carries the request id. The reply is lost if the process
  // ends.
  RequestId NewRequest() { return RequestId(next_request_++); }
  void Request(core::Event event, std::function<void(const core::Reply&)> done);

 private:
  struct Turn {
    core::Effects effects;
    bool committed = false;
  };
  struct Session {
    std::shared_ptr<Stream> stream;
    std::function<void(const v1::CoordinatorMessage&)> deliver;
    std::function<void(const absl::Status&)> closed;
  };

  void Handle(core::Event event);
  void Step(const core::Event& event);
  void Commit(const core::Effects& effects);
  void ReleaseCommitted();
  void Release(const core::Effects& effects);
  void ArmTick();
  bool IsStale(const core::Event& event) const;

  World& world_;
  Store disk_;
  std::unique_ptr<core::Core> core_;
  uint64_t process_ = 0;  // number of starts: actions scheduled by an earlier process are void
  std::deque<Turn> turns_;
  uint64_t first_turn_ = 0;
  SteadyTime last_commit_;
  SteadyTime paused_until_;
  SteadyTime armed_ = SteadyTime::Infinite();
  uint64_t next_session_ = 1;
  uint64_t next_request_ = 1;
  std::map<SessionId, Session> sessions_;
  std::map<SessionId, std::pair<std::string, uint64_t>>
      workers_;                               // node and incarnation of each session
  std::map<std::string, uint64_t> accepted_;  // node -> incarnation of the last welcomed worker
  std::map<RequestId, std::function<void(const core::Reply&)>> requests_;
};

}  // namespace muster::simulation

#endif  // MUSTER_TESTS_SIMULATION_COORDINATOR_H_
