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
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/core/core.h"
#include "coordinator/core/event.h"
#include "tests/simulation/core_twin.h"
#include "tests/simulation/world.h"

namespace muster::simulation {

// Variable in the environment of ranks that distinguishes generations of a job to which several
// stores gave the same number (Process::instance).
inline constexpr char kInstanceVariable[] = "SIMULATED_INSTANCE";

class Coordinator {
 public:
  explicit Coordinator(World& world);

  bool up() const { return core_ != nullptr; }
  // Whether its machine refuses connections to this address, because no process listens there.
  bool Refuses(uint64_t address) const;
  // Whether it is about to end.
  bool closing() const { return closing_; }
  // Where the next process listens; 0 at first.
  uint64_t address() const { return address_; }
  core::Core* core() { return core_.get(); }

  void Start();
  // Starts on another machine, with the same store, at another address. The process must be down.
  void Move() { ++address_; }
  // Ends the process in order: connections are refused first.
  void Stop();
  // The machine loses power; it is up again when the next process starts on it.
  void LosePower() {
    Crash();
    powered_off_.insert(address_);
  }
  // Ends the process. Some of the steps not yet committed reach the disk and the others do not;
  // effects that wait for them are lost.
  void Crash();
  // ---- The store
  // Copies the committed records, as a backup does. Returns the number of the copy, from 1.
  uint64_t CopyStore();
  // Replaces the store by a copy, or by an empty one (0). The process must be down.
  void ReplaceStore(uint64_t copy);
  // A commit that a worker has seen. Copies of a store may give the same index to different
  // commits, but each process to one only.
  struct SeenCommit {
    uint64_t process = 0;
    uint64_t index = 0;  // 0: none
  };
  // Whether the store of the process had the commit.
  bool HadCommit(uint64_t process, const SeenCommit& commit) const;
  // Whether an operator has recovered the job, so that this store decides on all of its ranks.
  bool HasRecovered(const std::string& job) const { return disk_.recovered.count(job) != 0; }

  // Handles no events for a while, as if the process were stopped.
  void Pause(absl::Duration by) {
    paused_until_ = std::max(paused_until_, world_.scheduler.now().steady + by);
  }

  // Opens a worker's stream with its Hello. `used`, here and in Receive, is what the coordinator
  // may use of a message with something out of bounds.
  void Open(const std::shared_ptr<Stream>& stream, v1::Hello hello, std::optional<v1::Hello> used,
            std::function<void(const v1::CoordinatorMessage&)> deliver,
            std::function<void(const absl::Status&)> closed);
  void Receive(const std::shared_ptr<Stream>& stream, v1::WorkerMessage message,
               std::optional<v1::WorkerMessage> used);
  // Sends a client's request; `event` carries the request id. The reply is lost if the process
  // ends.
  RequestId NewRequest() { return RequestId(next_request_++); }
  void Request(core::Event event, std::function<void(const core::Reply&)> done);

 private:
  struct Turn {
    core::Effects effects;
    bool committed = false;
  };
  struct Disk {
    Store records;
    std::vector<uint64_t> committers;  // the process that made each commit
    std::map<std::pair<std::string, uint64_t>, uint64_t> instances;  // by generation
    std::set<std::string> recovered;                                 // jobs, from workers' records
  };
  struct Session {
    std::shared_ptr<Stream> stream;
    std::function<void(const v1::CoordinatorMessage&)> deliver;
    std::function<void(const absl::Status&)> closed;
    SteadyTime heard;  // arrival of the worker's last message
  };

  // `same` must have the same effects, apart from warnings.
  void Listen();
  // Once all decisions before Closing have left, refuses connections, and soon ends.
  void AwaitClosing();
  void Handle(core::Event event, std::optional<core::Event> same = std::nullopt);
  void Step(const core::Event& event, const std::optional<core::Event>& same = std::nullopt);
  core::Effects StepAndCompare(const core::Event& event, const std::optional<core::Event>& same,
                               bool more);
  // Adds a violation if a node is declared silent although its worker is not.
  void CheckSilence(const core::Effects& effects);
  void Commit(const core::Effects& effects);
  void NameInstance(const store::Mutation& placement, bool recovers);
  void ReleaseCommitted();
  void Release(const core::Effects& effects);
  void Deliver(const core::Send& send);
  void ArmTick();
  bool IsStale(const core::Event& event) const;

  World& world_;
  Disk disk_;
  std::map<uint64_t, Disk> copies_;
  std::map<uint64_t, std::vector<uint64_t>> found_;  // the committers on the disk of each process
  std::map<std::pair<std::string, uint64_t>, uint64_t> newest_instances_;  // over all stores
  std::unique_ptr<core::Core> core_;
  std::unique_ptr<CoreHistory> history_;  // null while no steps will be compared
  int comparisons_left_ = 0;
  uint64_t process_ = 0;  // number of starts: actions scheduled by an earlier process are void
  std::deque<Turn> turns_;
  uint64_t first_turn_ = 0;
  SteadyTime last_commit_;
  SteadyTime paused_until_;
  uint64_t address_ = 0;
  bool listening_ = false;
  bool closing_ = false;
  std::set<uint64_t> powered_off_;  // addresses of machines
  SteadyTime armed_ = SteadyTime::Infinite();
  uint64_t next_session_ = 1;
  uint64_t steps_ = 0;  // apart from ticks
  uint64_t next_request_ = 1;
  std::map<SessionId, Session> sessions_;
  std::map<SessionId, std::pair<std::string, uint64_t>>
      workers_;                               // node and incarnation of each session
  std::map<std::string, uint64_t> accepted_;  // node -> incarnation of the last welcomed worker
  std::map<RequestId, std::function<void(const core::Reply&)>> requests_;
};

}  // namespace muster::simulation

#endif  // MUSTER_TESTS_SIMULATION_COORDINATOR_H_
