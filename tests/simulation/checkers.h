// The invariants, one class each. Checkers observe what really happens: steps of the core, commits,
// and processes that start and end on machines. A simulation passes if it collects no violations.
#ifndef MUSTER_TESTS_SIMULATION_CHECKERS_H_
#define MUSTER_TESTS_SIMULATION_CHECKERS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "coordinator/core/core.h"
#include "coordinator/core/event.h"
#include "proto/muster/v1/worker.pb.h"

namespace muster::simulation {

using Store = std::map<std::string, std::string>;

// One rank process of a job.
struct Process {
  uint64_t machine = 0;
  std::string job;
  uint64_t generation = 0;
  // Distinguishes generations of a job to which several stores gave the same number.
  uint64_t instance = 0;
  uint32_t rank = 0;
  std::vector<uint32_t> slots;
  // Of a command job, on a worker that keeps leases: no two generations may run at once.
  bool fenced = false;

  // The generation: job, number and instance.
  std::tuple<std::string, uint64_t, uint64_t> whole() const { return {job, generation, instance}; }
  std::tuple<std::string, uint64_t, uint64_t, uint32_t> id() const {
    return {job, generation, instance, rank};
  }
};

// Names the process in violations.
std::string Name(const Process& process);

class Violations {
 public:
  void Add(std::string text) {
    if (list_.size() < 20) list_.push_back(std::move(text));
  }
  const std::vector<std::string>& list() const { return list_; }

 private:
  std::vector<std::string> list_;
};

class Checker {
 public:
  explicit Checker(Violations& violations) : violations_(violations) {}
  virtual ~Checker() = default;

  // `stale`: the event is from a worker that has been replaced.
  virtual void OnStep(const core::Core& core, const core::Event& event,
                      const core::Effects& effects, bool stale) {}
  // The writes of one step have reached the disk.
  virtual void OnCommit(const std::vector<store::Mutation>& writes) {}
  // The coordinator sends a message; `disk` is the state from which it could recover at this time.
  virtual void OnSend(const v1::CoordinatorMessage& message, const Store& disk) {}
  // The coordinator welcomes a worker.
  virtual void OnWelcome(const std::string& node, uint64_t incarnation) {}
  virtual void OnReply(const core::Reply& reply) {}
  virtual void OnRecovered(const core::Core& core, Time now) {}
  // The store is copied; `copy` numbers the copies from 1.
  virtual void OnStoreCopied(uint64_t copy) {}
  // While no coordinator runs, the store is replaced by that copy, or by an empty one (0).
  virtual void OnStoreReplaced(uint64_t copy) {}
  virtual void OnStarted(const Process& process) {}
  virtual void OnExited(const Process& process) {}
  // The job may continue elsewhere while the process still runs: its machine extends its lease
  // without an answer of the coordinator, or it outlives SIGKILL.
  virtual void OnUnfenced(const Process& process) {}
  virtual void OnArrived(const Process& process, uint64_t sequence) {}
  virtual void OnReleased(const Process& process, uint64_t sequence, uint32_t world_size) {}
  // The coordinator gives up a barrier at which the process may wait, because of a rank that it
  // names at the beginning of the message.
  virtual void OnHopeless(const Process& process, const std::string& message) {}
  virtual void OnKey(const Process& process, const std::string& value) {}
  // Rank 0 saves or removes a checkpoint in the directory that all generations of its job share, or
  // continues from one, or from none ("").
  virtual void OnCheckpointSaved(const Process& process, const std::string& name) {}
  virtual void OnCheckpointRemoved(const Process& process, const std::string& name) {}
  virtual void OnContinued(const Process& process, const std::string& name) {}

 protected:
  void AddViolation(std::string text) { violations_.Add(std::move(text)); }

 private:
  Violations& violations_;
};

// A checker whose expectations follow from what the store contains, and which change with it.
template <typename Facts>
class StoreChecker : public Checker {
 public:
  using Checker::Checker;
  void OnStoreCopied(uint64_t copy) override { copies_[copy] = facts_; }
  void OnStoreReplaced(uint64_t copy) override { facts_ = copies_[copy]; }

 protected:
  Facts facts_;

 private:
  std::map<uint64_t, Facts> copies_;
};

// The jobs that an operator has recovered from workers' records with this step.
std::set<std::string> RecoveredJobs(const core::Effects& effects);

// Returns the error in the account of a job's time; empty if every moment from its submission until
// its end, or until now, has one cause.
std::string FindWrongTime(const v1::Job& job, absl::Time now);

using Checkers = std::vector<std::unique_ptr<Checker>>;
// Add a checker for each invariant of ranks, of their checkpoints, and of what the store remembers.
void AddRankCheckers(Violations& violations, Checkers& checkers);
void AddCheckpointCheckers(Violations& violations, Checkers& checkers);
void AddStoreCheckers(Violations& violations, Checkers& checkers);

}  // namespace muster::simulation

#endif  // MUSTER_TESTS_SIMULATION_CHECKERS_H_
