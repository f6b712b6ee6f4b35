// Checks that the coordinator keeps its invariants whatever fails, and that every job ends once the
// faults stop.
//
// The real core runs between simulated machines, streams, disk and time, all derived from one seed.
// For a while, jobs are submitted, held, requeued and cancelled and nodes are cordoned and drained,
// while workers leave in order, streams break, networks are cut, workers, machines, ranks and the
// coordinator crash or stall, and other machines claim the names of nodes. In some clusters the
// only faults are workers that leave in order and an absent coordinator: there, no job may fail or
// use up a restart. Checkers watch the invariants all the time. Then all faults are repaired, and
// every job must end, every slot must become free, and no worker may hold any state.
//
// MUSTER_SIMULATION_SEEDS is the number of seeds to run; MUSTER_SIMULATION_SEED selects a single
// seed and prints its trace.
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/proto_time.h"
#include "coordinator/core/jobs/job.h"
#include "coordinator/core/reasons.h"
#include "coordinator/core/recovery/restart_policy.h"
#include "gtest/gtest.h"
#include "tests/simulation/coordinator.h"
#include "tests/simulation/machine.h"
#include "tests/simulation/world.h"

namespace muster::simulation {
namespace {

constexpr uint64_t kDefaultSeeds = 300;
constexpr absl::Duration kFaultDuration = absl::Seconds(120);
constexpr absl::Duration kHealDuration = absl::Seconds(600);

class Simulation {
 public:
  Simulation(uint64_t seed, bool tracing)
      : world_(std::make_unique<World>(seed)), coordinator_(*world_) {
    world_->tracing = tracing;
    world_->forgetful = Below(2) == 0;
    world_->orderly = Below(4) == 0;
    const uint64_t nodes = 1 + Below(4);
    for (uint64_t i = 0; i < nodes; ++i) {
      AddMachine(absl::StrCat("node-", i), static_cast<uint32_t>(1 + Below(3)));
    }
    node_count_ = nodes;
  }

  void Run() {
    coordinator_.Start();
    for (const auto& machine : machines_) machine->StartWorker();
    Repeat(absl::Milliseconds(100), absl::Seconds(6), &Simulation::SubmitSomeJob);
    // Fault rates differ widely between clusters.
    Repeat(absl::Milliseconds(100), absl::Seconds(1 << (1 + Below(5))),
           world_->orderly ? &Simulation::CauseOrderlyFault : &Simulation::CauseFault);
    Repeat(absl::Seconds(1), absl::Seconds(10), &Simulation::HoldRequeueOrCancelSomeJob);
    Repeat(absl::Seconds(1), absl::Seconds(20), &Simulation::OperateSomeNode);
    world_->scheduler.RunUntil(SteadyTime(kFaultDuration), [this] { return Failed(); });
    if (Failed()) return;
    Heal();
    world_->scheduler.RunUntil(SteadyTime(kFaultDuration + kHealDuration),
                               [this] { return Failed() || HasConverged(); });
    if (!Failed() && !HasConverged()) ExplainStall();
  }

  uint64_t wait_notices() const { return world_->wait_notices; }
  bool Failed() const { return !world_->violations.list().empty(); }
  const std::vector<std::string>& violations() const { return world_->violations.list(); }
  const std::vector<std::string>& trace() const { return world_->trace; }
  std::vector<v1::Job> Jobs() {
    v1::ListJobsRequest all;
    all.set_include_finished(true);
    return coordinator_.up() ? coordinator_.core()->ListJobs(all, world_->scheduler.now())
                             : std::vector<v1::Job>();
  }

 private:
  uint64_t Below(uint64_t bound) { return world_->random.Below(bound); }

  Machine& AddMachine(const std::string& node, uint32_t slots) {
    slots_[node] = slots;
    machines_.push_back(std::make_unique<Machine>(
        *world_, coordinator_,
        Machine::Options{node, machines_.size() + 1, slots, [this](const Process& process) {
                           for (const auto& machine : machines_) machine->PeerDied(process);
                         }}));
    return *machines_.back();
  }

  // Repeats `what` at random intervals until the faults stop.
  void Repeat(absl::Duration least, absl::Duration most, void (Simulation::*what)()) {
    world_->scheduler.After(world_->random.Between(least, most), [this, least, most, what] {
      if (world_->scheduler.now().steady >= SteadyTime(kFaultDuration)) return;
      (this->*what)();
      Repeat(least, most, what);
    });
  }

  void SubmitSomeJob() {
    v1::JobSpec spec;
    spec.set_name("job");
    if (Below(3) == 0) {
      spec.add_command("program");
      if (Below(2) == 0) (*spec.mutable_env())["JOINS"] = "1";
    } else {
      spec.mutable_train();
    }
    const uint32_t most = static_cast<uint32_t>(1 + Below(node_count_));
    spec.mutable_resources()->mutable_nodes()->set_max(most);
    spec.mutable_resources()->mutable_nodes()->set_min(
        Below(2) == 0 ? most : static_cast<uint32_t>(1 + Below(most)));
    spec.mutable_resources()->set_devices_per_rank(Below(5) == 0 ? "all" : "1");
    spec.mutable_restart()->set_max(static_cast<uint32_t>(Below(4)));
    spec.set_priority(static_cast<int32_t>(Below(3)));
    if (!world_->orderly && Below(10) == 0) (*spec.mutable_env())["FAILS"] = "0";
    if (Below(10) == 0) *spec.mutable_time_limit() = ToProto(absl::Seconds(5));
    *spec.mutable_grace_period() = ToProto(absl::Seconds(2));
    Submit(spec, absl::StrCat("key-", next_job_), 1 + Below(2));
  }

  // A client repeats unanswered submissions with the same key and another id.
  void Submit(const v1::JobSpec& spec, const std::string& key, uint64_t attempts) {
    core::SubmitJob submit;
    submit.request = coordinator_.NewRequest();
    submit.job_id = JobId(absl::StrCat("job-", next_job_++));
    submit.spec = spec;
    submit.idempotency_key = key;
    coordinator_.Request(submit, [this, key](const core::Reply& reply) {
      if (!reply.job.ok()) {
        world_->violations.Add(reply.job.status().ToString());
        return;
      }
      const auto [made, first] = made_.emplace(key, reply.job->job_id());
      if (first) {
        jobs_.push_back(reply.job->job_id());
      } else if (made->second != reply.job->job_id()) {
        world_->violations.Add(absl::StrCat(key, " created two jobs"));
      }
    });
    if (attempts > 1) {
      world_->scheduler.After(absl::Seconds(1 + Below(5)),
                              [this, spec, key, attempts] { Submit(spec, key, attempts - 1); });
    }
  }

  void HoldRequeueOrCancelSomeJob() {
    if (jobs_.empty()) return;
    const JobId job(jobs_[Below(jobs_.size())]);
    const RequestId request = coordinator_.NewRequest();
    switch (Below(4)) {
      case 0:
        coordinator_.Request(core::CancelJob{request, job, std::nullopt},
                             [this, job](const core::Reply& reply) {
                               if (reply.job.ok() && !core::IsTerminal(reply.job->state())) {
                                 cancelled_.insert(job.value());
                               }
                             });
        cancel_tried_.insert(job.value());
        break;
      case 1:
        coordinator_.Request(core::HoldJob{request, job}, [](const core::Reply&) {});
        break;
      case 2:
        coordinator_.Request(core::RequeueJob{request, job}, [](const core::Reply&) {});
        break;
      default:
        coordinator_.Request(core::ReleaseJob{request, job}, [](const core::Reply&) {});
    }
  }

  void OperateSomeNode() {
    const NodeName node(machines_[Below(machines_.size())]->node());
    switch (Below(3)) {
      case 0:
        coordinator_.Request(core::CordonNode{node, "a reason", Below(2) == 0}, nullptr);
        break;
      default:
        coordinator_.Request(core::UncordonNode{node}, nullptr);
    }
  }

  void CauseOrderlyFault() {
    Machine& machine = *machines_[Below(machines_.size())];
    switch (Below(4)) {
      case 0:
        coordinator_.Crash();
        world_->scheduler.After(world_->random.Between(absl::Milliseconds(10), absl::Seconds(12)),
                                [this] { coordinator_.Start(); });
        break;
      case 1:
        coordinator_.Pause(world_->random.Between(absl::Milliseconds(10), absl::Seconds(5)));
        break;
      default:
        LeaveAndComeBack(machine);
    }
  }

  void LeaveAndComeBack(Machine& machine) {
    machine.Leave();
    StartWhenGone(machine);
  }
  void StartWhenGone(Machine& machine) {
    world_->scheduler.After(
        world_->random.Between(absl::Milliseconds(10), absl::Seconds(2)),
        [this, &machine] { machine.worker_up() ? StartWhenGone(machine) : machine.StartWorker(); });
  }

  void CauseFault() {
    Machine& machine = *machines_[Below(machines_.size())];
    switch (Below(13)) {
      case 0:
      case 1:
        machine.BreakStream();
        break;
      case 2:
        machine.CutNetwork(world_->random.Between(absl::Seconds(1), absl::Seconds(20)));
        break;
      case 3:
      case 4:
        machine.CrashWorker();
        StartLater(machine, absl::Seconds(8));
        break;
      case 5:
        machine.Crash(/*forget=*/world_->forgetful && Below(2) == 0);
        StartLater(machine, absl::Seconds(15));
        break;
      case 6:
      case 7:
        machine.FailSomeRank();
        break;
      case 8:
      case 9:
        coordinator_.Crash();
        world_->scheduler.After(world_->random.Between(absl::Milliseconds(10), absl::Seconds(12)),
                                [this] { coordinator_.Start(); });
        break;
      case 10:
        coordinator_.Pause(world_->random.Between(absl::Milliseconds(10), absl::Seconds(15)));
        break;
      case 11:
        LeaveAndComeBack(machine);
        break;
      default:
        if (!world_->forgetful || Below(3) != 0) break;
        // Another machine claims the name of a node, and keeps it if the coordinator admits it.
        if (machines_.size() < 2 * node_count_)
          AddMachine(machine.node(), slots_[machine.node()]).StartWorker();
    }
  }

  void StartLater(Machine& machine, absl::Duration most) {
    world_->scheduler.After(world_->random.Between(absl::Milliseconds(10), most),
                            [&machine] { machine.StartWorker(); });
  }

  // Repairs everything: one running machine per node, no held jobs, no cordoned nodes.
  void Heal() {
    world_->Note("all faults are repaired");
    coordinator_.Start();
    for (const auto& machine : machines_) {
      const bool newest = std::none_of(machines_.begin(), machines_.end(), [&](const auto& other) {
        return other->node() == machine->node() && other->id() > machine->id();
      });
      if (newest) {
        machine->CutNetwork(absl::ZeroDuration());
        machine->StartWorker();
        RestartWhileRefused(*machine);
      } else {
        machine->Retire();
      }
    }
    for (const auto& [node, slots] : slots_) {
      coordinator_.Request(core::UncordonNode{NodeName(node)}, nullptr);
    }
    for (const std::string& job : jobs_) {
      coordinator_.Request(core::ReleaseJob{coordinator_.NewRequest(), JobId(job)},
                           [](const core::Reply&) {});
    }
  }

  // A worker that was replaced can return only with a new incarnation.
  void RestartWhileRefused(Machine& machine) {
    world_->scheduler.After(absl::Seconds(15), [this, &machine] {
      if (machine.refused()) {
        machine.CrashWorker();
        machine.StartWorker();
      }
      if (!machine.welcomed()) RestartWhileRefused(machine);
    });
  }

  bool HasConverged() {
    if (!coordinator_.up()) return false;
    for (const auto& machine : machines_) {
      if (!machine->retired() && (!machine->welcomed() || !machine->idle())) return false;
    }
    for (const v1::Job& brief : Jobs()) {
      if (!core::IsTerminal(brief.state())) return false;
      const v1::Job job = *coordinator_.core()->GetJob(JobId(brief.job_id()), /*detailed=*/true,
                                                       world_->scheduler.now());
      if (static_cast<int>(job.restarts()) > job.past_failures_size()) {
        world_->violations.Add(absl::StrCat(job.job_id(), " was restarted without a failure"));
      }
      if (job.restarts_used() > job.spec().restart().max()) {
        world_->violations.Add(absl::StrCat(job.job_id(), " was restarted too often"));
      }
      if (job.state() == v1::FAILED && job.reason() == core::reasons::kNodeLost &&
          job.past_failures_size() < static_cast<int>(core::kMaxFailedAttempts)) {
        world_->violations.Add(absl::StrCat(job.job_id(), " gave up too early: ", job.message()));
      }
      if (world_->orderly && job.has_first_failure()) {
        world_->violations.Add(absl::StrCat(
            job.job_id(),
            " failed in a simulation with orderly faults only: ", job.first_failure().message()));
      }
      if (job.state() == v1::CANCELLED && cancel_tried_.count(job.job_id()) == 0) {
        world_->violations.Add(absl::StrCat(job.job_id(), " was cancelled without a request"));
      }
      if (cancelled_.count(job.job_id()) != 0 && job.state() != v1::CANCELLED &&
          job.state() != v1::TIMED_OUT) {
        world_->violations.Add(absl::StrCat(job.job_id(), " continued after it was cancelled"));
      }
      if (job.first_failure().reason() == core::reasons::kRendezvousTimedOut) {
        world_->violations.Add(absl::StrCat(
            job.job_id(), " timed out in its rendezvous: ", job.first_failure().message()));
      }
      if (job.state() == v1::SUCCEEDED && job.exit_code() != 0) {
        world_->violations.Add(absl::StrCat(job.job_id(), " succeeded with a nonzero exit code"));
      }
      if (job.state() == v1::FAILED && (job.exit_code() == 0 || !job.has_first_failure())) {
        world_->violations.Add(absl::StrCat(job.job_id(), " failed without a cause"));
      }
    }
    for (const v1::Node& node : coordinator_.core()->ListNodes(world_->scheduler.now())) {
      for (const v1::Slot& slot : node.slots()) {
        if (!slot.job_id().empty()) {
          world_->violations.Add(
              absl::StrCat("slot ", slot.index(), " of ", node.name(), " is never released"));
        }
      }
    }
    return true;
  }

  void ExplainStall() {
    world_->violations.Add("the simulation did not finish");
    for (const v1::Job& job : Jobs()) {
      if (core::IsTerminal(job.state())) continue;
      world_->violations.Add(coordinator_.core()
                                 ->GetJob(JobId(job.job_id()), true, world_->scheduler.now())
                                 ->DebugString());
    }
    for (const auto& machine : machines_) {
      if (!machine->retired() && !machine->idle()) world_->violations.Add(machine->Describe());
    }
  }

  std::unique_ptr<World> world_;
  Coordinator coordinator_;
  std::vector<std::unique_ptr<Machine>> machines_;
  std::map<std::string, uint32_t> slots_;
  uint64_t node_count_ = 0;
  uint64_t next_job_ = 1;
  std::map<std::string, std::string> made_;  // by idempotency key
  std::vector<std::string> jobs_;
  std::set<std::string> cancelled_;
  std::set<std::string> cancel_tried_;
};

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  uint64_t value = 0;
  return text != nullptr && absl::SimpleAtoi(text, &value) ? value : otherwise;
}

TEST(Simulation, InvariantsHoldAndAllJobsEnd) {
  const uint64_t alone = FromEnvironment("MUSTER_SIMULATION_SEED", 0);
  const uint64_t seeds = FromEnvironment("MUSTER_SIMULATION_SEEDS", kDefaultSeeds);
  std::map<std::string, uint64_t> ends;
  uint64_t restarts = 0;
  uint64_t notices = 0;
  for (uint64_t seed = alone != 0 ? alone : 1; seed <= (alone != 0 ? alone : seeds); ++seed) {
    Simulation simulation(seed, /*tracing=*/alone != 0);
    simulation.Run();
    for (const v1::Job& job : simulation.Jobs()) {
      ++ends[v1::JobState_Name(job.state())];
      restarts += job.restarts();
    }
    notices += simulation.wait_notices();
    if (alone != 0) std::cout << absl::StrJoin(simulation.trace(), "\n") << "\n";
    ASSERT_FALSE(simulation.Failed()) << "repeat with MUSTER_SIMULATION_SEED=" << seed << "\n"
                                      << absl::StrJoin(simulation.violations(), "\n");
  }
  for (const auto& [state, count] : ends) std::cout << state << " " << count << "\n";
  std::cout << "restarts " << restarts << "\nwait notices " << notices << "\n";
  // A simulation in which nothing happens proves nothing.
  if (alone != 0) return;
  for (const char* state : {"SUCCEEDED", "FAILED", "CANCELLED", "TIMED_OUT"}) {
    EXPECT_GT(ends[state], 0u) << state;
  }
  EXPECT_GT(restarts, seeds / 2);
  EXPECT_GT(notices, seeds);
}

}  // namespace
}  // namespace muster::simulation
