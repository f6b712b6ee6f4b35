// A simulated cluster: the real coordinator core between simulated machines, clients, operators,
// network, disk and time, all derived from one seed.
#ifndef MUSTER_TESTS_SIMULATION_SIMULATION_H_
#define MUSTER_TESTS_SIMULATION_SIMULATION_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "proto/muster/v1/job.pb.h"
#include "tests/simulation/coordinator.h"
#include "tests/simulation/machine.h"
#include "tests/simulation/world.h"

namespace muster::simulation {

class Simulation {
 public:
  enum class Kind {
    kAllFaults,
    kCuts,            // cuts of the network, and what they meet: lost coordinators, crashed workers
    kLostCoordinator  // for LoseCoordinator
  };
  // `wall_step`: the wall clock is set forward and back by this all the time.
  Simulation(uint64_t seed, bool tracing, absl::Duration wall_step = absl::ZeroDuration());
  Simulation(uint64_t seed, Kind kind, Mutation mutation = Mutation::kNone, bool tracing = false);

  // Causes faults for a while, repairs everything, and waits until every job has ended and no state
  // is left on the machines.
  void Run();

  // Runs command jobs, cuts off or crashes less than half of the nodes, and then loses the
  // coordinator for good. No rank on the other nodes may end. Returns the number of these ranks.
  uint64_t LoseCoordinator();

  bool Failed() const { return !world_->violations.list().empty(); }
  const std::vector<std::string>& violations() const { return world_->violations.list(); }
  const std::vector<std::string>& trace() const { return world_->trace; }
  uint64_t wait_notices() const { return world_->wait_notices; }
  absl::Duration simulated_time() const { return world_->scheduler.now().steady.since_start(); }
  // Faults that were injected and rare situations that were reached, by kind.
  const std::map<std::string, uint64_t>& faults() const { return world_->faults; }
  std::vector<v1::Job> Jobs();
  // Empty while no coordinator runs.
  v1::Goodput GoodputOf(const std::string& job);

 private:
  // Facts that clients know from replies; they change with the coordinator's store.
  struct Acknowledged {
    std::map<std::string, std::string> made;  // jobs by idempotency key
    std::set<std::string> cancelled;
  };

  uint64_t Below(uint64_t bound) { return world_->random.Below(bound); }
  Machine& AddMachine(const std::string& node, uint32_t slots);
  Machine& SomeMachine() { return *machines_[Below(machines_.size())]; }
  // Asks all other machines, on behalf of machine `from`.
  void Ask(uint64_t from, const v1::LeaseQuestion& question, const Machine::Reply& reply);
  // Repeats `what` at random intervals until the faults stop.
  void Repeat(absl::Duration least, absl::Duration most, void (Simulation::*what)());

  // ---- Clients and operators
  void SubmitSomeJob();
  // A client repeats unanswered submissions with the same key and another id.
  void Submit(const v1::JobSpec& spec, const std::string& key, uint64_t attempts);
  void HoldRequeueOrCancelSomeJob();
  void OperateSomeNode();
  // Nodes whose ranks belong to another store.
  std::vector<NodeName> Conflicts();
  void RecoverOrDiscard();
  void Recover(std::vector<NodeName> nodes, bool discard);

  // ---- Faults
  void CauseFaultNearCut();
  void CauseOrderlyFault();
  void CauseFault();
  void CausePause();
  // Cuts the network for a while: around a machine, between two groups of machines, or between
  // two machines, the coordinator's included; in one direction or both.
  void CutNetwork();
  void HealNetwork();
  void UpgradeSomeWorker();
  void CauseStoreFault();
  void ReturnToTrueStore();
  void RestartCoordinator(absl::Duration longest_absence);
  void StartCoordinatorAfter(absl::Duration delay, bool moves);
  void LeaveAndComeBack(Machine& machine);
  void StartWhenGone(Machine& machine);
  void StartLater(Machine& machine, absl::Duration most);
  uint64_t CopyStore();
  void KeepBackup() { backup_ = CopyStore(); }
  void ReplaceStore(uint64_t copy);

  // An operator confirms that nodes are lost whose machines are off.
  void ConfirmLostNodes();

  // ---- The end
  // Causes faults until their time is over, and repairs them.
  void RunToTheEnd();
  // Repairs everything: one running machine per node, no held jobs, no cordoned nodes.
  void Heal();
  void RecoverWhileInConflict();
  void ConfirmWhileSilent();
  // A worker that was replaced can return only with a new incarnation.
  void RestartWhileRefused(Machine& machine);
  bool HasConverged();
  void CheckEnd(const v1::Job& job);
  void ExplainStall();

  const Kind kind_;
  std::unique_ptr<World> world_;
  Coordinator coordinator_;
  std::vector<std::unique_ptr<Machine>> machines_;
  std::map<std::string, uint32_t> slots_;
  uint64_t node_count_ = 0;
  uint64_t next_job_ = 1;
  std::vector<std::string> jobs_;
  std::set<std::string> cancel_tried_;
  Acknowledged acknowledged_;
  std::map<uint64_t, Acknowledged> acknowledged_by_copy_;
  uint64_t backup_ = 0;      // the newest copy of the store
  uint64_t true_store_ = 0;  // the copy that replaces a wrong store; 0: the store is the right one
  bool store_replaced_ = false;
};

}  // namespace muster::simulation

#endif  // MUSTER_TESTS_SIMULATION_SIMULATION_H_
