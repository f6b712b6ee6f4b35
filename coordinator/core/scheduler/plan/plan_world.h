// A cluster in simulated time for tests of the planner: jobs of known length run on nodes as the
// plans say, and stop when they are preempted. Checks each plan while it is carried out.
#ifndef MUSTER_COORDINATOR_CORE_SCHEDULER_PLAN_PLAN_WORLD_H_
#define MUSTER_COORDINATOR_CORE_SCHEDULER_PLAN_PLAN_WORLD_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/ids.h"
#include "common/time/time.h"
#include "coordinator/core/nodes/node_table.h"
#include "coordinator/core/scheduler/fair_share.h"
#include "coordinator/core/scheduler/options.h"
#include "coordinator/core/scheduler/plan/cluster.h"
#include "coordinator/core/scheduler/plan/plan.h"
#include "coordinator/core/scheduler/plan/queue.h"

namespace muster::core::testing {

class PlanWorld {
 public:
  struct Spec {
    std::string owner = "alice";
    JobClass job_class = JobClass::kNormal;
    int32_t priority = 0;
    uint32_t nodes = 1;
    uint32_t slots = 1;       // of each node
    uint32_t most_nodes = 0;  // more than `nodes`: elastic
    bool all = false;         // takes all slots of its nodes
    bool exclusive = false;
    absl::Duration limit = absl::InfiniteDuration();   // time limit, grace included
    absl::Duration length = absl::InfiniteDuration();  // that it really runs for
  };
  enum class State { kQueued, kRunning, kStopping, kEnded };
  struct Job {
    JobId id;
    Spec spec;
    State state = State::kQueued;
    uint64_t sequence = 0;
    SteadyTime submitted;
    SteadyTime first_start = SteadyTime::Infinite();
    SteadyTime started;
    SteadyTime ends = SteadyTime::Infinite();  // while running or stopping
    absl::Duration run_time;                   // of earlier runs
    bool preempted = false;
    uint32_t preemptions = 0;
    uint64_t starts = 0;
    std::map<NodeName, std::vector<uint32_t>> slots;  // while running or stopping
    uint32_t taken = 0;                               // slots that no other job can use
    bool overdue = false;
  };

  explicit PlanWorld(SchedulerOptions options = {});

  void AddNode(const std::string& name, uint32_t slots);
  JobId Submit(const Spec& spec);
  // Ends a running or stopping job now, without a decision.
  void End(const JobId& id);
  // Removes a queued job, or ends one that runs or stops for good, without a decision.
  void Cancel(const JobId& id);
  // Makes a decision and carries it out.
  const Plan& Decide();
  // When something happens next: a job ends, stops or is overdue; infinite if nothing does.
  SteadyTime NextEvent() const;
  // Moves to a time, with a decision whenever something happens.
  void AdvanceTo(SteadyTime time);
  void Advance(absl::Duration by) { AdvanceTo(now_ + by); }

  // Stops when a job is preempted for which this time is its grace period.
  absl::Duration grace = absl::Seconds(30);

  const Job& job(const JobId& id) const { return jobs_.at(id); }
  const std::map<JobId, Job>& jobs() const { return jobs_; }
  const Plan& plan() const { return plan_; }
  const JobQueue& queue() const { return queue_; }
  const Cluster& cluster() const { return cluster_; }
  const FairShare& usage() const { return usage_; }
  SteadyTime now() const { return now_; }
  Verdict VerdictOf(const JobId& id) const { return plan_.Find(*queue_.Find(id)); }
  bool IsRunning(const JobId& id) const { return job(id).state == State::kRunning; }
  std::set<std::string> NodesOf(const JobId& id) const;
  uint32_t SlotsInUse() const { return in_use_; }
  // Problems that the checks have found; empty: none.
  const std::vector<std::string>& problems() const { return problems_; }

 private:
  StartResult Start(const StartRequest& request);
  void Stop(const JobId& victim, const JobId& by);
  void Enqueue(const Job& job);
  void SetRunning(const Job& job);
  void Touch(const Job& job);

  SchedulerOptions options_;
  SteadyTime now_{absl::Hours(1000)};
  NodeMap nodes_;
  JobQueue queue_;
  Cluster cluster_;
  FairShare usage_;
  Plan plan_;
  std::map<JobId, Job> jobs_;
  std::set<std::pair<SteadyTime, JobId>> ends_;
  std::set<NodeName> touched_;
  bool rebuild_ = true;
  uint64_t next_ = 1;
  uint32_t in_use_ = 0;
  std::vector<std::string> problems_;
};

}  // namespace muster::core::testing

#endif  // MUSTER_COORDINATOR_CORE_SCHEDULER_PLAN_PLAN_WORLD_H_
