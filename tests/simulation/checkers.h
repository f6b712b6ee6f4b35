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
  uint32_t rank = 0;
  std::vector<uint32_t> slots;

  std::tuple<std::string, uint64_t, uint32_t> id() const { return {job, generation, rank}; }
};

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
  virtual void OnStep(const core::Event& event, const core::Effects& effects, bool stale) {}
  // The writes of one step have reached the disk.
  virtual void OnCommit(const std::vector<store::Mutation>& writes) {}
  // The coordinator sends a message; `disk` is the state from which it could recover at this time.
  virtual void OnSend(const v1::CoordinatorMessage& message, const Store& disk) {}
  // The coordinator welcomes a worker.
  virtual void OnWelcome(const std::string& node, uint64_t incarnation) {}
  virtual void OnReply(const core::Reply& reply) {}
  virtual void OnRecovered(const core::Core& core, Time now) {}
  virtual void OnStarted(const Process& process) {}
  virtual void OnExited(const Process& process) {}
  virtual void OnArrived(const Process& process, uint64_t sequence) {}
  virtual void OnReleased(const Process& process, uint64_t sequence, uint32_t world_size) {}
  virtual void OnKey(const Process& process, const std::string& value) {}

 protected:
  void AddViolation(std::string text) { violations_.Add(std::move(text)); }

 private:
  Violations& violations_;
};

// Creates a checker for each invariant.
std::vector<std::unique_ptr<Checker>> MakeCheckers(Violations& violations);

}  // namespace muster::simulation

#endif  // MUSTER_TESTS_SIMULATION_CHECKERS_H_
