#include "coordinator/core/scheduler/plan/plan.h"

#include <algorithm>
#include <utility>

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

Plan Planner::Run(Start start) {
  for (const RunningJob& job : cluster_.all_running()) {
    if (!job.id.value().empty() && job.overdue) plan_.overdue_slots += job.slots;
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
                          queue_.shapes()[group.shape].unplaceable.empty();
    if (!outranks) {
      walk.SkipGroup(entry->group);
      continue;
    }
    const Reservation* const own = last_.FindReservation(entry->id);
    if (own != nullptr && own->after_preemption) continue;
    const Candidate job = Describe(*entry);
    if (allowance_.IsExceeded(job)) {
      walk.SkipGroupInLine(entry->group);
      continue;
    }
    for (const Cluster::Row& row : job.cells->rows) {
      if (preemptor_.UnitsAfterStops(job, row) < job.cells->demand.units) continue;
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
    if (allowance_.IsExceeded(job, &preemptor_.stopping())) continue;
    std::set<uint32_t> nodes;
    for (const NodeName& name : claim.nodes) {
      const uint32_t node = cluster_.IndexOf(name);
      if (node < cluster_.node_count()) nodes.insert(node);
    }
    if (IsOutranked(job, nodes)) continue;
    if (!allowance_.IsExceeded(job) && StartOnClaim(job, nodes, start)) continue;
    if (!MayPreempt(job) || !Claim(job, nodes)) continue;
    allowance_.NoteRenewed(job.id);
    plan_.of_groups[group] = {Hindrance::kNoSlots, job.slots};
  }
}

StartResult Planner::CallStart(Start start, const StartRequest& request) {
  const StartResult result = start(request);
  preemptor_.OnStart();
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
    const std::optional<StartRequest> request = MakeRequest(job, i, &nodes);
    if (!request.has_value()) continue;
    if (CallStart(start, *request).outcome != StartResult::Outcome::kNotPlaced) return true;
  }
  return false;
}

void Planner::Examine(QueueWalk& walk, Start start) {
  uint32_t examined = 0;
  bool overdue_served = false;
  while (examined < options_.backfill_depth) {
    const JobQueue::Entry* entry = walk.Next();
    const bool critical = entry != nullptr && entry->job_class == JobClass::kCritical;
    if (!critical && !std::exchange(overdue_served, true)) {
      const JobId next = entry == nullptr ? JobId() : entry->id;
      ServeOverdue(start);
      entry = queue_.Find(next);  // it may have been the overdue one
      if (!next.value().empty() && entry == nullptr) continue;
    }
    if (entry == nullptr) break;
    if (kept_overdue_.count(entry->id) != 0) continue;
    // A job with a claim may start elsewhere.
    const bool has_claim = allowance_.IsRenewed(entry->id);
    const uint32_t group = entry->group;
    if (!queue_.ShapeOfGroup(group).unplaceable.empty()) {
      plan_.of_groups[group] = {Hindrance::kUnplaceable, 0};
      walk.SkipGroup(group);
      continue;
    }
    const Candidate job = Describe(*entry);
    const bool exceeds_limit = allowance_.IsExceeded(job);
    if (exceeds_limit && has_claim) continue;
    if (exceeds_limit && MayPreempt(job) && Claim(job, /*preferred=*/{})) {
      plan_.of_groups[group] = {Hindrance::kNoSlots, job.slots};
      continue;
    }
    const std::optional<uint32_t> row = exceeds_limit ? std::nullopt : holds_.FindRow(job);
    std::optional<StartRequest> request;
    if (row.has_value()) request = MakeRequest(job, *row);
    if (exceeds_limit || (row.has_value() && !request.has_value())) {
      if (has_claim) continue;
      plan_.of_owners[{job.owner_index, group}] = {Hindrance::kOwnerLimit, job.slots};
      walk.SkipGroupInLine(group);
      continue;
    }
    Verdict verdict{Hindrance::kNoSlots, job.slots};
    if (row.has_value()) {
      const StartResult result = CallStart(start, *request);
      if (result.outcome == StartResult::Outcome::kGone) continue;
      if (result.outcome == StartResult::Outcome::kStarted) {
        holds_.NoteStart(job, *row, result.slots);
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
    if (reservations_ < options_.reservations && Reserve(job)) ++reservations_;
    walk.SkipGroup(group);
  }
  if (!overdue_served) ServeOverdue(start);
}

void Planner::DropClaim(const Candidate& job) {
  allowance_.DropClaim(job);
  const auto end = std::remove_if(plan_.reservations.begin(), plan_.reservations.end(),
                                  [&](const Reservation& kept) { return kept.job == job.id; });
  plan_.reservations.erase(end, plan_.reservations.end());
}

void Planner::CorrectVerdicts() {
  for (auto& [index, verdict] : plan_.of_groups) {
    if (verdict.hindrance != Hindrance::kReserved) continue;
    const JobQueue::Group& group = queue_.group(index);
    if (group.jobs == 0) continue;
    const Cluster::Cells& cells = cluster_.CellsOf(group.shape, queue_.shapes()[group.shape]);
    if (Cluster::FindFitting(cells) == nullptr) verdict.hindrance = Hindrance::kNoSlots;
  }
}

void Planner::ServeOverdue(Start start) {
  plan_.most_overdue_slots = cluster_.slot_count() * options_.overdue_percent / 100;
  Ageing ageing = Age(
      queue_, cluster_, last_.heads, options_.ageing, now_, [this](const JobQueue::Entry& entry) {
        const uint32_t limit = options_.LimitsOf(queue_.order().owner(entry.owner)).running_slots;
        return limit == 0 || !allowance_.IsExceeded(Describe(entry));
      });
  plan_.heads = std::move(ageing.heads);
  plan_.next_overdue = ageing.next_overdue;
  for (const Head& head : ageing.overdue) {
    const JobQueue::Entry* const entry = queue_.Find(head.job);
    if (entry == nullptr || plan_.FindReservation(head.job) != nullptr) continue;
    const uint32_t group = entry->group;
    const Candidate job = Describe(*entry);
    // No younger one goes first, so that large jobs are served, too.
    const bool alone = plan_.overdue_slots == 0;
    if (!alone && plan_.overdue_slots + job.slots > plan_.most_overdue_slots) break;
    if (const std::optional<uint32_t> row = holds_.FindRow(job)) {
      std::optional<StartRequest> request = MakeRequest(job, *row);
      if (!request.has_value()) continue;
      request->overdue = true;
      const StartResult result = CallStart(start, *request);
      if (result.outcome == StartResult::Outcome::kStarted) {
        holds_.NoteStart(job, *row, result.slots);
        plan_.overdue_slots += job.slots;
      }
      if (result.outcome != StartResult::Outcome::kNotPlaced) continue;
    }
    if (!Reserve(job)) continue;
    plan_.reservations.back().overdue = true;
    plan_.overdue_slots += job.slots;
    plan_.of_groups.try_emplace(group, Verdict{Hindrance::kNoSlots, job.slots});
    kept_overdue_.insert(job.id);
  }
}

bool Planner::Reserve(const Candidate& job) {
  // After a restart of the coordinator, other nodes may still reconnect.
  const bool may_grow = queue_.shapes().IsUnchecked(queue_.group(job.group).shape);
  const std::optional<Fit> fit = holds_.FindFit(job, now_, may_grow);
  if (!fit.has_value()) return false;
  plan_.reservations.push_back(holds_.Add(job, *fit, /*is_claim=*/false));
  return true;
}

bool Planner::Claim(const Candidate& job, const std::set<uint32_t>& preferred) {
  const std::optional<Clearing> clearing = preemptor_.Find(job, preferred);
  if (!clearing.has_value()) return false;
  preemptor_.Add(job, *clearing);
  allowance_.AddClaim(job);
  plan_.reservations.push_back(holds_.Add(job, clearing->fit, /*is_claim=*/true));
  if (clearing->victims.empty()) return true;
  Preemption& preemption = plan_.preemptions.emplace_back();
  preemption.job = job.id;
  for (const uint32_t victim : clearing->victims) {
    preemption.victims.push_back(cluster_.running(victim).id);
  }
  return true;
}

std::optional<StartRequest> Planner::MakeRequest(const Candidate& job, uint32_t row_index,
                                                 const Nodes* nodes) const {
  const Cluster::Row& row = job.cells->rows[row_index];
  const Demand& demand = job.cells->demand;
  StartRequest request{job.id, job.cells->resources};
  const auto exclude = [&](uint32_t node) {
    request.resources.add_exclude_nodes(cluster_.node(node).node->record.name());
    request.narrowed = true;
  };
  for (const Holds::Hold& hold : holds_.all()) {
    if (!Holds::MayUse(job, row, hold)) exclude(hold.node);
  }
  for (uint32_t node = 0; nodes != nullptr && node < cluster_.node_count(); ++node) {
    if (nodes->count(node) == 0) exclude(node);
  }
  if (!KeepLimit(job, row, nodes, request)) return std::nullopt;
  if (request.narrowed && demand.request.kinds.size() > 1) {
    request.resources.set_device(demand.request.kinds[row_index]);
  }
  return request;
}

bool Planner::KeepLimit(const Candidate& job, const Cluster::Row& row, const Nodes* nodes,
                        StartRequest& request) const {
  const Demand& demand = job.cells->demand;
  const uint32_t limit = options_.LimitsOf(job.owner).running_slots;
  const bool varies = demand.by_node || demand.most_units > demand.units;
  if (limit == 0 || !varies) return true;
  std::vector<std::pair<uint32_t, uint32_t>> free;  // slots that the job takes of each node
  for (uint32_t node = 0; node < row.supplies.size(); ++node) {
    const Holds::Hold* const hold = holds_.Of(node);
    if (hold != nullptr && !Holds::MayUse(job, row, *hold)) continue;
    if (nodes != nullptr && nodes->count(node) == 0) continue;
    const uint32_t slots = TakenOf(demand, row.supplies[node], row.supplies[node].free);
    if (slots > 0) free.emplace_back(slots, node);
  }
  // The smallest nodes, as many as the limit allows.
  std::sort(free.begin(), free.end());
  const uint64_t used = allowance_.Used(job);
  const uint64_t left = limit - std::min<uint64_t>(limit, used);
  uint32_t units = 0;
  size_t count = 0;
  uint64_t smallest = 0, largest = 0;
  while (count < free.size() && units < demand.most_units && smallest + free[count].first <= left) {
    const Supply& supply = row.supplies[free[count].second];
    units += ContributionOf(demand, supply.usable, supply.free, demand.most_units).units;
    smallest += free[count].first;
    largest += free[free.size() - 1 - count].first;
    ++count;
  }
  if (units < demand.units) return false;
  if (!demand.in_ranks && count < demand.most_units) {
    request.resources.mutable_nodes()->set_max(static_cast<uint32_t>(count));
  }
  if (largest <= left) return true;  // so may any others
  request.narrowed = true;
  for (size_t i = count; i < free.size(); ++i) {
    request.resources.add_exclude_nodes(cluster_.node(free[i].second).node->record.name());
  }
  return true;
}

}  // namespace muster::core
