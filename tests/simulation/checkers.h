// The invariants, one class each. They see what really happens: steps of the core, commits,
// processes that start and end on machines. What they object to is collected; a simulation without
// objections has passed.
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

// One process of a job.
struct Process {
  uint64_t machine = 0;
  std::string job;
  uint64_t generation = 0;
  uint32_t rank = 0;
  std::vector<uint32_t> slots;

  std::tuple<std::string, uint64_t, uint32_t> id() const { return {job, generation, rank}; }
};

class Objections {
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
  explicit Checker(Objections& objections) : objections_(objections) {}
  virtual ~Checker() = default;

  // `stale`: the event is the word of a worker that another one has replaced.
  virtual void OnStep(const core::Event& event, const core::Effects& effects, bool stale) {}
  // One step's writes have reached the disk.
  virtual void OnCommit(const std::vector<store::Mutation>& writes) {}
  // Something leaves the coordinator; `disk` is what it could know of again.
  virtual void OnSend(const v1::CoordinatorMessage& message, const Store& disk) {}
  // A worker is let in.
  virtual void OnWelcome(const std::string& node, uint64_t incarnation) {}
  virtual void OnReply(const core::Reply& reply) {}
  virtual void OnRecovered(const core::Core& core, Time now) {}
  virtual void OnStarted(const Process& process) {}
  virtual void OnEnded(const Process& process) {}
  virtual void OnArrived(const Process& process, uint64_t sequence) {}
  virtual void OnReleased(const Process& process, uint64_t sequence, uint32_t world_size) {}
  virtual void OnKey(const Process& process, const std::string& value) {}

 protected:
  void Object(std::string text) { objections_.Add(std::move(text)); }

 private:
  Objections& objections_;
};

// All of the invariants.
std::vector<std::unique_ptr<Checker>> MakeCheckers(Objections& objections);

}  // namespace muster::simulation

#endif  // MUSTER_TESTS_SIMULATION_CHECKERS_H_
