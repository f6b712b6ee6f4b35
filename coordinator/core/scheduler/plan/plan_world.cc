#include "coordinator/core/scheduler/plan/plan_world.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "coordinator/core/scheduler/placement/placement.h"

namespace muster::core::testing {
namespace {

v1::Resources ResourcesOf(const PlanWorld::Spec& spec) {
  v1::Resources resources;
  resources.mutable_nodes()->set_min(spec.nodes);
  resources.mutable_nodes()->set_max(std::max(spec.nodes, spec.most_nodes));
  resources.set_ranks_per_node(spec.all ? 1 : spec.slots);
  if (spec.all) resources.set_devices_per_rank("all");
  resources.set_exclusive(spec.exclusive);
  resources.set_device("cpu");
  return resources;
}

}  // namespace

PlanWorld::PlanWorld(SchedulerOptions options)
    : options_(std::move(options)), queue_(options_.lookahead), usage_(options_.half_life) {}

void PlanWorld::AddNode(const std::string& name, uint32_t slots) {
  Node& node = nodes_[NodeName(name)];
  node.record.set_name(name);
  node.state = v1::READY;
  node.seen = true;
  for (uint32_t slot = 0; slot < slots; ++slot) node.hello.add_slots()->set_index(slot);
  rebuild_ = true;
}

JobId PlanWorld::Submit(const Spec& spec) {
  const uint64_t sequence = next_++;
  const JobId id(absl::StrCat("job-", sequence));
  Job& job = jobs_[id];
  job.id = id;
  job.spec = spec;
  job.sequence = sequence;
  job.submitted = now_;
  Enqueue(job);
  return id;
}

void PlanWorld::Enqueue(const Job& job) {
  QueueItem item;
  item.id = job.id;
  item.owner = job.spec.owner;
  item.job_class = job.spec.job_class;
  item.priority = job.spec.priority;
  item.has_run = job.starts > 0;
  item.preempted = job.preempted;
  item.sequence = job.sequence;
  item.slots = job.spec.nodes * job.spec.slots;
  item.resources = ResourcesOf(job.spec);
  item.length = job.spec.limit - job.run_time;
  item.waiting_since = job.submitted + job.run_time;
  queue_.Add(item);
}

void PlanWorld::Touch(const Job& job) {
  for (const auto& [node, slots] : job.slots) touched_.insert(node);
}

void PlanWorld::SetRunning(const Job& job) {
  RunningJob running;
  running.id = job.id;
  running.generation = Generation(job.starts);
  running.owner = job.spec.owner;
  running.job_class = job.spec.job_class;
  running.started = job.started;
  running.grace = grace;
  running.stopping = job.state == State::kStopping;
  running.overdue = job.overdue;
  running.slots = job.taken;
  running.sequence = job.sequence;
  running.end = running.stopping ? job.ends : job.started + (job.spec.limit - job.run_time);
  for (const auto& [node, slots] : job.slots) running.nodes.push_back(node);
  cluster_.SetRunning(std::move(running));
  Touch(job);
}

StartResult PlanWorld::Start(const StartRequest& request) {
  StartResult result;
  Job& job = jobs_.at(request.job);
  const auto placements = Place(request.resources, nodes_, Offers::kNow, /*share_device=*/false);
  if (placements.empty()) return result;
  result.outcome = StartResult::Outcome::kStarted;
  if (placements.size() < job.spec.nodes ||
      placements.size() > std::max(job.spec.nodes, job.spec.most_nodes)) {
    problems_.push_back(absl::StrCat(job.id.value(), " starts on ", placements.size(), " of ",
                                     job.spec.nodes, " nodes"));
  }
  ++job.starts;
  for (const v1::NodePlacement& placement : placements) {
    const NodeName name(placement.node());
    std::vector<uint32_t>& slots = job.slots[name];
    for (const v1::RankRecord& rank : placement.ranks()) {
      for (const uint32_t slot : rank.slots()) {
        if (nodes_.at(name).ranks.by_slot().count(slot) != 0) {
          problems_.push_back(absl::StrCat(job.id.value(), " starts on a slot in use"));
        }
        slots.push_back(slot);
      }
    }
    nodes_.at(name).ranks.Occupy({job.id, Generation(job.starts), 0}, slots, job.spec.exclusive);
    in_use_ += slots.size();
    result.slots.emplace_back(name, TakenSlots(placement, nodes_.at(name), job.spec.exclusive));
    job.taken += result.slots.back().second;
  }
  const uint32_t limit = options_.LimitsOf(job.spec.owner).running_slots;
  if (limit > 0 && usage_.RunningSlots(job.spec.owner) + job.taken > limit) {
    problems_.push_back(absl::StrCat(job.id.value(), " exceeds the limit of its owner"));
  }
  job.state = State::kRunning;
  job.started = now_;
  job.preempted = false;
  job.overdue = request.overdue;
  job.first_start = std::min(job.first_start, now_);
  job.ends = now_ + (std::min(job.spec.length, job.spec.limit) - job.run_time);
  if (job.ends < SteadyTime::Infinite()) ends_.insert({job.ends, job.id});
  queue_.Remove(job.id);
  usage_.OnStart(job.spec.owner, job.taken, now_);
  SetRunning(job);
  cluster_.Refresh(std::exchange(touched_, {}), queue_.shapes());
  return result;
}

void PlanWorld::Stop(const JobId& victim, const JobId& by) {
  Job& job = jobs_.at(victim);
  const Job& winner = jobs_.at(by);
  if (job.state != State::kRunning || job.spec.job_class >= winner.spec.job_class) {
    problems_.push_back(absl::StrCat(victim.value(), " is preempted by ", by.value()));
  }
  if (job.overdue && winner.spec.job_class != JobClass::kCritical) {
    problems_.push_back(absl::StrCat(victim.value(), " is overdue, and preempted by ", by.value()));
  }
  if (winner.preempted) {
    problems_.push_back(absl::StrCat(by.value(), " was preempted and preempts ", victim.value()));
  }
  ends_.erase({job.ends, victim});
  job.state = State::kStopping;
  job.preempted = true;
  ++job.preemptions;
  job.ends = now_ + grace;
  ends_.insert({job.ends, victim});
  SetRunning(job);
}

void PlanWorld::End(const JobId& id) {
  Job& job = jobs_.at(id);
  ends_.erase({job.ends, id});
  Touch(job);
  for (const auto& [name, slots] : job.slots) {
    nodes_.at(name).ranks.Vacate({id, Generation(job.starts), 0});
    in_use_ -= slots.size();
  }
  job.slots.clear();
  cluster_.RemoveRunning(id);
  usage_.OnEnd(job.spec.owner, std::exchange(job.taken, 0), now_);
  job.run_time += now_ - job.started;
  const bool again = job.state == State::kStopping;
  job.state = again ? State::kQueued : State::kEnded;
  if (again) Enqueue(job);
}

void PlanWorld::Cancel(const JobId& id) {
  Job& job = jobs_.at(id);
  if (job.state == State::kQueued) {
    queue_.Remove(id);
    job.state = State::kEnded;
  } else if (job.state != State::kEnded) {
    job.state = State::kRunning;  // not to be queued again
    End(id);
  }
}

const Plan& PlanWorld::Decide() {
  if (std::exchange(rebuild_, false)) {
    cluster_.Rebuild(nodes_);
    queue_.UncheckShapes();
  }
  cluster_.Refresh(std::exchange(touched_, {}), queue_.shapes());
  queue_.CheckShapes([this](const JobId& id) -> std::optional<std::string> {
    const uint32_t shape = queue_.group(queue_.Find(id)->group).shape;
    return Cluster::FitsVacant(cluster_.CellsOf(shape, queue_.shapes()[shape])) ? "" : "too large";
  });
  plan_ = Planner(queue_, cluster_, usage_, options_, now_, plan_)
              .Run([this](const StartRequest& request) { return Start(request); });
  for (const Preemption& preemption : plan_.preemptions) {
    for (const JobId& victim : preemption.victims) Stop(victim, preemption.job);
  }
  cluster_.Refresh(std::exchange(touched_, {}), queue_.shapes());
  return plan_;
}

SteadyTime PlanWorld::NextEvent() const {
  const SteadyTime end = ends_.empty() ? SteadyTime::Infinite() : ends_.begin()->first;
  return std::min(end, plan_.next_overdue);
}

void PlanWorld::AdvanceTo(SteadyTime time) {
  while (NextEvent() <= time) {
    now_ = std::max(now_, NextEvent());
    while (!ends_.empty() && ends_.begin()->first <= now_) {
      const JobId id = ends_.begin()->second;
      End(id);
    }
    Decide();
  }
  now_ = std::max(now_, time);
}

std::set<std::string> PlanWorld::NodesOf(const JobId& id) const {
  std::set<std::string> nodes;
  for (const auto& [node, slots] : job(id).slots) nodes.insert(node.value());
  return nodes;
}

}  // namespace muster::core::testing
