#include "coordinator/core/scheduler/plan.h"

#include <algorithm>

namespace muster::core {

Verdict Plan::Find(const JobQueue::Entry& entry) const {
  const auto of_owner = of_owners.find({entry.owner, entry.group});
  if (of_owner != of_owners.end()) return of_owner->second;
  const auto of_group = of_groups.find(entry.group);
  return of_group == of_groups.end() ? Verdict() : of_group->second;
}

const Reservation* Plan::FindReservation(const JobId& job) const {
  for (const Reservation& reservation : reservations) {
    if (reservation.job == job) return &reservation;
  }
  return nullptr;
}

Planner::Candidate Planner::Describe(const JobQueue::Entry& entry) const {
  const JobQueue::Group& group = queue_.group(entry.group);
  Candidate job;
  job.id = entry.id;
  job.owner = queue_.owner(entry.owner);
  job.owner_index = entry.owner;
  job.group = entry.group;
  job.job_class = group.job_class;
  job.preempted = group.preempted;
  job.end = now_ + group.length;
  job.cells = &cluster_.CellsOf(group.shape, queue_.shape(group.shape));
  job.slots = LeastSlots(job.cells->demand);
  return job;
}

bool Planner::ExceedsLimit(const Candidate& job) const {
  const uint32_t limit = options_.LimitsOf(job.owner).running_slots;
  if (limit == 0) return false;
  const auto claimed = claimed_by_owner_.find(job.owner);
  const uint64_t used =
      usage_.RunningSlots(job.owner) + (claimed == claimed_by_owner_.end() ? 0 : claimed->second);
  return used + job.slots > limit;
}

Plan Planner::Run(Start start) {
  hold_of_.assign(cluster_.node_count(), kNone);
  for (const RunningJob& job : cluster_.all_running()) {
    stops_.push_back(job.stopping);
    if (job.id.value().empty()) continue;
    lowest_running_ = std::min(lowest_running_.value_or(job.job_class), job.job_class);
  }
  RenewClaims(start);
  QueueWalk walk = WalkQueue();
  Examine(walk, start);
  CorrectVerdicts();
  return std::move(plan_);
}

QueueWalk Planner::WalkQueue() const {
  return QueueWalk(queue_, [this](const std::string& owner) {
    const double running = usage_.RunningSlots(owner) * absl::ToDoubleSeconds(options_.lookahead);
    return Standing{usage_.Usage(owner, now_) + running, options_.ShareOf(owner)};
  });
}

bool Planner::IsOutranked(const Candidate& claimant, const std::set<uint32_t>& nodes) const {
  QueueWalk walk = WalkQueue();
  while (const JobQueue::Entry* const entry = walk.Next()) {
    const JobQueue::Group& group = queue_.group(entry->group);
    const bool outranks = group.job_class > claimant.job_class && !group.preempted &&
                          queue_.shape(group.shape).unplaceable.empty();
    if (!outranks) {
      walk.SkipGroup(entry->group);
      continue;
    }
    const Reservation* const own = last_.FindReservation(entry->id);
    if (own != nullptr && own->after_preemption) continue;
    const Candidate job = Describe(*entry);
    if (ExceedsLimit(job)) {
      walk.SkipGroupInLine(entry->group);
      continue;
    }
    for (const Cluster::Row& row : job.cells->rows) {
      if (UnitsAfterStops(job, row, stops_) < job.cells->demand.units) continue;
      for (const uint32_t node : nodes) {
        if (row.supplies[node].usable > 0) return true;
      }
    }
    walk.SkipGroup(entry->group);
  }
  return false;
}

void Planner::RenewClaims(Start start) {
  for (const Reservation& claim : last_.reservations) {
    const JobQueue::Entry* const entry = queue_.Find(claim.job);
    if (!claim.after_preemption || entry == nullptr) continue;
    if (!queue_.ShapeOfGroup(entry->group).unplaceable.empty()) continue;
    const uint32_t group = entry->group;
    const Candidate job = Describe(*entry);
    if (ExceedsLimit(job)) continue;
    std::set<uint32_t> nodes;
    for (const NodeName& name : claim.nodes) {
      const uint32_t node = cluster_.IndexOf(name);
      if (node < cluster_.node_count()) nodes.insert(node);
    }
    if (IsOutranked(job, nodes)) continue;
    if (StartOnClaim(job, nodes, start)) continue;
    if (!MayPreempt(job) || !Claim(job, nodes)) continue;
    claimants_.insert(job.id);
    plan_.of_groups[group] = {Hindrance::kNoSlots, job.slots};
  }
}

StartResult Planner::CallStart(Start start, const StartRequest& request) {
  const StartResult result = start(request);
  stops_.resize(cluster_.all_running().size());
  return result;
}

bool Planner::StartOnClaim(const Candidate& job, const std::set<uint32_t>& nodes, Start start) {
  const Demand& demand = job.cells->demand;
  for (uint32_t i = 0; i < job.cells->rows.size(); ++i) {
    const Cluster::Row& row = job.cells->rows[i];
    uint64_t units = 0;
    for (const uint32_t node : nodes) {
      const Supply& supply = row.supplies[node];
      units += ContributionOf(demand, supply.usable, supply.free, demand.units).units;
    }
    if (units < demand.units) continue;
    StartRequest request = MakeRequest(job, i);
    request.narrowed = true;
    for (uint32_t node = 0; node < cluster_.node_count(); ++node) {
      if (nodes.count(node) != 0) continue;
      request.resources.add_exclude_nodes(cluster_.node(node).node->record.name());
    }
    if (demand.request.kinds.size() > 1) request.resources.set_device(demand.request.kinds[i]);
    if (CallStart(start, request).outcome != StartResult::Outcome::kNotPlaced) return true;
  }
  return false;
}

void Planner::Examine(QueueWalk& walk, Start start) {
  uint32_t examined = 0;
  while (examined < options_.backfill_depth) {
    const JobQueue::Entry* const entry = walk.Next();
    if (entry == nullptr) break;
    // A job with a claim may start elsewhere.
    const bool has_claim = claimants_.count(entry->id) != 0;
    const uint32_t group = entry->group;
    if (!queue_.ShapeOfGroup(group).unplaceable.empty()) {
      plan_.of_groups[group] = {Hindrance::kUnplaceable, 0};
      walk.SkipGroup(group);
      continue;
    }
    const Candidate job = Describe(*entry);
    if (!has_claim && ExceedsLimit(job)) {
      plan_.of_owners[{job.owner_index, group}] = {Hindrance::kOwnerLimit, job.slots};
      walk.SkipGroupInLine(group);
      continue;
    }
    Verdict verdict{Hindrance::kNoSlots, job.slots};
    const std::optional<uint32_t> row = FindRow(job);
    if (row.has_value()) {
      const StartResult result = CallStart(start, MakeRequest(job, *row));
      if (result.outcome == StartResult::Outcome::kGone) continue;
      if (result.outcome == StartResult::Outcome::kStarted) {
        NoteStart(job, *row, result);
        uint32_t slots = 0;
        for (const auto& [node, count] : result.slots) slots += count;
        walk.Count(slots);
        if (has_claim) DropClaim(job);
        continue;
      }
      verdict.hindrance = Hindrance::kNotPlaced;
    } else if (Cluster::FindFitting(*job.cells) != nullptr) {
      verdict.hindrance = Hindrance::kReserved;
    }
    if (has_claim) continue;
    ++examined;
    plan_.of_groups[group] = verdict;
    // The next job of the group may claim slots, too.
    if (MayPreempt(job) && Claim(job, /*preferred=*/{})) continue;
    if (reservations_ < options_.reservations) Reserve(job);
    walk.SkipGroup(group);
  }
}

void Planner::DropClaim(const Candidate& job) {
  claimed_by_owner_[job.owner] -= job.slots;
  const auto end = std::remove_if(plan_.reservations.begin(), plan_.reservations.end(),
                                  [&](const Reservation& kept) { return kept.job == job.id; });
  plan_.reservations.erase(end, plan_.reservations.end());
}

void Planner::CorrectVerdicts() {
  for (auto& [index, verdict] : plan_.of_groups) {
    if (verdict.hindrance != Hindrance::kReserved) continue;
    const JobQueue::Group& group = queue_.group(index);
    if (group.jobs == 0) continue;
    const Cluster::Cells& cells = cluster_.CellsOf(group.shape, queue_.shape(group.shape));
    if (Cluster::FindFitting(cells) == nullptr) verdict.hindrance = Hindrance::kNoSlots;
  }
}

// ------------------------------------------------------------------------------------------------
// starts

bool Planner::EndsBefore(const Candidate& job, const Hold& hold) {
  return hold.from < SteadyTime::Infinite() && job.end <= hold.from;
}

bool Planner::MayUse(const Candidate& job, const Cluster::Row& row, const Hold& hold) const {
  if (EndsBefore(job, hold) || hold.job == job.id) return true;
  const Demand& demand = job.cells->demand;
  if (hold.kind != row.kind && !hold.exclusive && !demand.request.exclusive) return true;
  if (hold.exclusive || demand.request.exclusive) return false;
  const Supply& supply = row.supplies[hold.node];
  return ContributionOf(demand, supply.usable, supply.free, demand.most_units).slots <= hold.spare;
}

std::optional<uint32_t> Planner::FindRow(const Candidate& job) const {
  const Demand& demand = job.cells->demand;
  for (uint32_t i = 0; i < job.cells->rows.size(); ++i) {
    const Cluster::Row& row = job.cells->rows[i];
    if (row.free_units < demand.units) continue;
    uint64_t units = row.free_units;
    for (const Hold& hold : holds_) {
      if (MayUse(job, row, hold)) continue;
      const Supply& supply = row.supplies[hold.node];
      units -= ContributionOf(demand, supply.usable, supply.free, demand.most_units).units;
    }
    if (units >= demand.units) return i;
  }
  return std::nullopt;
}

StartRequest Planner::MakeRequest(const Candidate& job, uint32_t row_index) const {
  const Cluster::Row& row = job.cells->rows[row_index];
  const Demand& demand = job.cells->demand;
  StartRequest request{job.id, job.cells->resources};
  v1::Resources& resources = request.resources;
  for (const Hold& hold : holds_) {
    if (MayUse(job, row, hold)) continue;
    resources.add_exclude_nodes(cluster_.node(hold.node).node->record.name());
    request.narrowed = true;
  }
  if (request.narrowed && demand.request.kinds.size() > 1)
    resources.set_device(demand.request.kinds[row_index]);
  // An elastic job takes no more nodes than the limit allows.
  const uint32_t limit = options_.LimitsOf(job.owner).running_slots;
  if (limit > 0 && demand.most_units > demand.units) {
    const uint32_t per_node = job.slots / demand.units;
    const uint32_t left = limit - usage_.RunningSlots(job.owner);
    const uint32_t most = std::max(demand.units, left / std::max(1u, per_node));
    if (most < demand.most_units) resources.mutable_nodes()->set_max(most);
  }
  return request;
}

void Planner::NoteStart(const Candidate& job, uint32_t row, const StartResult& result) {
  for (const auto& [name, slots] : result.slots) {
    const uint32_t node = cluster_.IndexOf(name);
    if (node == cluster_.node_count() || hold_of_[node] == kNone) continue;
    Hold& hold = holds_[hold_of_[node]];
    if (hold.kind != job.cells->rows[row].kind || EndsBefore(job, hold)) continue;
    hold.spare -= std::min(hold.spare, slots);
  }
}

}  // namespace muster::core
