#include "coordinator/core/scheduler/scheduler.h"

#include <algorithm>

#include "common/time/proto_time.h"
#include "coordinator/core/jobs/job_time.h"

namespace muster::core {
namespace {

// The longest time that the job can still run, with the grace period in which its ranks stop.
absl::Duration LengthOf(const Job& job) {
  if (!job.spec().has_time_limit()) return absl::InfiniteDuration();
  const absl::Duration left = FromProto(job.spec().time_limit()) - job.run_time;
  return std::max(left, absl::ZeroDuration()) + FromProto(job.spec().grace_period());
}

}  // namespace

QueueItem QueueItemOf(const Job& job, const Time& now) {
  QueueItem item;
  item.id = job.id();
  item.owner = job.status.owner();
  item.job_class = ClassOf(job.spec().priority_class());
  item.priority = job.spec().priority();
  item.has_run = job.status.generation() > 0;
  item.restarting = job.restarting;
  item.preempted = job.preempted;
  item.sequence = job.queue_sequence;
  item.slots = LeastSlots(DemandOf(job.spec().resources()));
  item.resources = job.spec().resources();
  item.length = LengthOf(job);
  item.waiting_since = job.WaitingSince(now);
  return item;
}

RunningJob RunningJobOf(const Job& job, const Time& now) {
  RunningJob running;
  running.id = job.id();
  running.generation = job.generation->number();
  running.owner = job.status.owner();
  running.job_class = ClassOf(job.spec().priority_class());
  running.started = job.generation_start;
  running.grace = FromProto(job.spec().grace_period());
  running.overdue = job.generation->record.overdue();
  running.slots = SlotsOf(job);
  running.sequence = job.queue_sequence;
  for (const v1::NodePlacement& placement : job.generation->record.nodes()) {
    running.nodes.push_back(NodeName(placement.node()));
  }
  if (job.state() == v1::STOPPING) {
    running.stopping = true;
    // A failed job may start again in the same place.
    if (job.ending.outcome != v1::FAILED) running.end = job.generation->grace_end;
  } else if (const std::optional<SteadyTime> end = job.TimeLimitEnd()) {
    running.end = *end + running.grace;
  }
  return running;
}

uint32_t SlotsOf(const Job& job) { return CountSlots(job.generation->record).total(); }

// ------------------------------------------------------------------------------------------------
// order

Standing Scheduler::StandingOf(const std::string& owner) const {
  const double running = usage_->RunningSlots(owner) * absl::ToDoubleSeconds(options().lookahead);
  return {usage_->Usage(owner, context_.now.steady) + running, options().ShareOf(owner)};
}

std::vector<JobId> Scheduler::First(size_t count) const {
  std::vector<JobId> ids;
  QueueWalk walk(queue_, Standings());
  while (ids.size() < count) {
    const JobQueue::Entry* const entry = walk.Next();
    if (entry == nullptr) break;
    ids.push_back(entry->id);
    walk.Count(entry->place.slots);
  }
  return ids;
}

absl::flat_hash_map<std::string, uint32_t> Scheduler::Positions() const {
  absl::flat_hash_map<std::string, uint32_t> positions;
  positions.reserve(queue_.size());
  uint32_t position = 0;
  for (const JobId& id : First(queue_.size())) positions[id.value()] = ++position;
  return positions;
}

// ------------------------------------------------------------------------------------------------
// running jobs

void Scheduler::SetRunning(const Job& job) {
  RunningJob running = RunningJobOf(job, context_.now);
  changed_nodes_.insert(running.nodes.begin(), running.nodes.end());
  cluster_.SetRunning(std::move(running));
}

void Scheduler::OnStarted(Job& job) {
  job.EndWait(context_.now);
  queue_.Remove(job.id());
  SetRunning(job);
  fair_share_.OnStart(job.status.owner(), SlotsOf(job), context_.now.steady);
}

void Scheduler::OnEnded(const Job& job, uint32_t slots) {
  if (const RunningJob* const running = cluster_.FindRunning(job.id())) {
    changed_nodes_.insert(running->nodes.begin(), running->nodes.end());
  }
  cluster_.RemoveRunning(job.id());
  fair_share_.OnEnd(job.status.owner(), slots, context_.now.steady);
  OnCapacityChanged();
}

// ------------------------------------------------------------------------------------------------
// decisions

bool Scheduler::TakeCapacityChange(NodeTable& nodes) {
  if (queue_.empty()) {
    plan_ = Plan();
    capacity_changed_ = false;
    return false;  // the cluster is brought up to date when it is needed
  }
  if (std::exchange(known_nodes_, nodes.members()) != nodes.members()) {
    nodes.TakeChangedSlots();
    changed_nodes_.clear();
    cluster_.Rebuild(nodes.all());
  }
  if (std::exchange(nodes_version_, nodes.version()) != nodes.version()) {
    queue_.UncheckShapes();
    capacity_changed_ = true;
  }
  if (!std::exchange(capacity_changed_, false)) return false;
  Refresh(nodes);
  return true;
}

void Scheduler::Refresh(NodeTable& nodes) {
  std::set<NodeName> changed = nodes.TakeChangedSlots();
  changed.merge(changed_nodes_);
  changed_nodes_.clear();
  cluster_.Refresh(changed, queue_.shapes());
}

bool Scheduler::SomeJobWaits() const {
  return std::any_of(plan_.of_groups.begin(), plan_.of_groups.end(), [](const auto& entry) {
    return entry.second.hindrance != Hindrance::kUnplaceable;
  });
}

bool Scheduler::ExceedsLimit(const std::string& owner, uint32_t slots) const {
  const uint32_t limit = options().LimitsOf(owner).running_slots;
  return limit > 0 && uint64_t{usage_->RunningSlots(owner)} + slots > limit;
}

bool Scheduler::SurelyFitsVacant(const JobId& id) {
  const JobQueue::Entry* const entry = queue_.Find(id);
  if (entry == nullptr || cluster_.shares_devices()) return false;
  const uint32_t shape = queue_.group(entry->group).shape;
  return Cluster::FitsVacant(cluster_.CellsOf(shape, queue_.shapes()[shape]));
}

const Plan& Scheduler::Decide(Planner::Start start) {
  plan_ = Planner(queue_, cluster_, *usage_, options(), context_.now.steady, plan_).Run(start);
  return plan_;
}

Scheduler::Forecast Scheduler::ForecastOf(const Job& job, const NodeTable& nodes,
                                          Planner::Start start) const {
  JobQueue queue = queue_;
  Cluster cluster = cluster_;
  // See TakeCapacityChange.
  if (queue.empty() || known_nodes_ != nodes.members()) cluster.Rebuild(nodes.all());
  queue.Add(QueueItemOf(job, context_.now));
  Forecast forecast;
  forecast.position = queue.PositionOf(job.id(), Standings());
  forecast.plan = Planner(queue, cluster, *usage_, options(), context_.now.steady, plan_)
                      .Run([&](const StartRequest& request) {
                        // No other job starts: otherwise it would have.
                        if (request.job != job.id()) return StartResult();
                        StartResult result = start(request);
                        forecast.started = result.outcome == StartResult::Outcome::kStarted;
                        queue.Remove(request.job);
                        return result;
                      });
  if (const JobQueue::Entry* const entry = queue.Find(job.id())) {
    forecast.verdict = forecast.plan.Find(*entry);
  }
  return forecast;
}

}  // namespace muster::core
