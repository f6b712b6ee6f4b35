#include "coordinator/core/scheduler/plan/preempt.h"

#include <algorithm>
#include <tuple>

namespace muster::core {

Preemptor::Preemptor(const Cluster& cluster, const Holds& holds, const Allowance& allowance,
                     SteadyTime now)
    : cluster_(cluster), holds_(holds), allowance_(allowance), now_(now) {
  for (const RunningJob& job : cluster_.all_running()) {
    stopping_.push_back(job.stopping);
    if (job.id.value().empty()) continue;
    lowest_running_ = std::min(lowest_running_.value_or(job.job_class), job.job_class);
  }
}

bool Preemptor::MayPreempt(const Candidate& job) const {
  return !job.preempted && lowest_running_.has_value() && *lowest_running_ < job.job_class;
}

std::optional<Clearing> Preemptor::Find(const Candidate& job,
                                        const std::set<uint32_t>& preferred) const {
  for (uint32_t row = 0; row < job.cells->rows.size(); ++row) {
    std::optional<Clearing> clearing = FindInRow(job, row, preferred);
    if (clearing.has_value()) return clearing;
  }
  return std::nullopt;
}

void Preemptor::Add(const Candidate& job, const Clearing& clearing) {
  const uint32_t kind = job.cells->rows[clearing.fit.row].kind;
  for (const auto& [node, share] : clearing.fit.shares) claimed_[{kind, node}] += share.slots;
  for (const uint32_t victim : clearing.victims) stopping_[victim] = true;
}

uint32_t Preemptor::FreeAfter(const Candidate& job, const Cluster::Row& row, uint32_t node,
                              const Stopping& stopping) const {
  const Holds::Hold* const hold = holds_.Of(node);
  if (hold != nullptr && !hold->is_claim) return 0;
  const uint32_t usable = row.supplies[node].usable;
  if (usable == 0) return 0;
  uint32_t free = row.supplies[node].free;
  uint32_t kept = 0;
  uint32_t freed = 0;
  for (const Cluster::Use& use : cluster_.node(node).uses) {
    const bool ends = use.job != Cluster::kNoJob && stopping[use.job];
    if (!ends) kept += use.slots;
    if (ends) freed += use.slots;
    if (ends && use.kind == row.kind) free += use.slots;
  }
  const auto claimed = claimed_.find({row.kind, node});
  const uint32_t taken = claimed == claimed_.end() ? 0 : claimed->second;
  if (job.cells->demand.request.exclusive) return kept == 0 && hold == nullptr ? usable : 0;
  if (kept == 0 && freed > 0) free = usable;  // also what an exclusive job did not use
  free = std::min(free, usable);
  return free - std::min(free, taken);
}

uint32_t Preemptor::UnitsOn(const Candidate& job, const Cluster::Row& row, uint32_t node,
                            const Stopping& stopping) const {
  const Demand& demand = job.cells->demand;
  return ContributionOf(demand, row.supplies[node].usable, FreeAfter(job, row, node, stopping),
                        demand.units)
      .units;
}

uint64_t Preemptor::UnitsAfter(const Candidate& job, const Cluster::Row& row,
                               const Stopping& stopping) const {
  uint64_t units = 0;
  for (uint32_t node = 0; node < row.supplies.size() && units < job.cells->demand.units; ++node) {
    units += UnitsOn(job, row, node, stopping);
  }
  return units;
}

// Whether `a` makes room rather than `b`: the lower class, then the one that started last.
bool Preemptor::IsCheaper(uint32_t a, uint32_t b) const {
  const RunningJob& one = cluster_.running(a);
  const RunningJob& other = cluster_.running(b);
  return std::tuple(one.job_class, other.started, one.id) <
         std::tuple(other.job_class, one.started, other.id);
}

bool Preemptor::IsPreemptible(uint32_t running, const Candidate& job) const {
  const RunningJob& other = cluster_.running(running);
  return !stopping_[running] && other.job_class < job.job_class &&
         (!other.overdue || job.job_class == JobClass::kCritical);
}

std::optional<std::vector<uint32_t>> Preemptor::FindOwnVictims(const Candidate& job) const {
  std::vector<uint32_t> victims;
  if (!allowance_.IsExceeded(job, &stopping_)) return victims;
  uint64_t excess = allowance_.Used(job, &stopping_) + job.slots - allowance_.LimitOf(job);
  std::vector<uint32_t> own;
  for (const uint32_t running : allowance_.RunningOf(job.owner)) {
    if (IsPreemptible(running, job)) own.push_back(running);
  }
  std::sort(own.begin(), own.end(), [this](uint32_t a, uint32_t b) { return IsCheaper(a, b); });
  for (const uint32_t victim : own) {
    if (excess == 0) break;
    victims.push_back(victim);
    excess -= std::min<uint64_t>(excess, cluster_.running(victim).slots);
  }
  if (excess > 0) return std::nullopt;
  return victims;
}

std::vector<uint32_t> Preemptor::VictimsOn(const Candidate& job, const Cluster::Row& row,
                                           uint32_t node, Stopping& stopping) const {
  std::vector<uint32_t> jobs;
  for (const Cluster::Use& use : cluster_.node(node).uses) {
    if (use.job == Cluster::kNoJob || stopping[use.job] || !IsPreemptible(use.job, job)) continue;
    if (std::find(jobs.begin(), jobs.end(), use.job) == jobs.end()) jobs.push_back(use.job);
  }
  std::sort(jobs.begin(), jobs.end(), [this](uint32_t a, uint32_t b) { return IsCheaper(a, b); });
  const uint32_t before = UnitsOn(job, row, node, stopping);
  size_t count = 0;
  bool more = false;
  while (count < jobs.size() && !more) {
    stopping[jobs[count++]] = true;
    more = UnitsOn(job, row, node, stopping) > before;
  }
  for (size_t i = 0; i < count; ++i) stopping[jobs[i]] = false;
  jobs.resize(more ? count : 0);
  return jobs;
}

// Adds the cheapest node until the job fits, then spares the victims that are not needed after all.
std::vector<uint32_t> Preemptor::FindVictims(const Candidate& job, const Cluster::Row& row,
                                             Stopping stopping) const {
  // The lowest class comes first, so that no job of a higher class is stopped in place of it.
  using Cost = std::tuple<JobClass, size_t, absl::Duration, uint32_t>;  // the last is the node
  struct State {
    uint32_t units = 0;
    std::optional<Cost> cost;  // unset: the node cannot contribute more
  };
  std::vector<State> nodes(row.supplies.size());
  std::set<Cost> costs;
  uint64_t units = 0;
  const auto count = [&](uint32_t node) {
    units -= nodes[node].units;
    nodes[node].units = UnitsOn(job, row, node, stopping);
    units += nodes[node].units;
  };
  const auto assess = [&](uint32_t node) {
    State& state = nodes[node];
    if (state.cost.has_value()) costs.erase(*state.cost);
    state.cost.reset();
    if (row.supplies[node].usable == 0) return;
    const std::vector<uint32_t> jobs = VictimsOn(job, row, node, stopping);
    if (jobs.empty()) return;
    const RunningJob& dearest = cluster_.running(jobs.back());
    state.cost = {dearest.job_class, jobs.size(), -dearest.started.since_start(), node};
    costs.insert(*state.cost);
  };
  const auto for_nodes_of = [&](uint32_t victim, const auto& visit) {
    for (const NodeName& name : cluster_.running(victim).nodes) {
      const uint32_t node = cluster_.IndexOf(name);
      if (node < nodes.size()) visit(node);
    }
  };
  for (uint32_t node = 0; node < nodes.size(); ++node) {
    count(node);
    assess(node);
  }
  const uint32_t wanted = job.cells->demand.units;
  std::vector<uint32_t> victims;
  while (units < wanted) {
    if (costs.empty()) return {};
    const uint32_t cheapest = std::get<3>(*costs.begin());
    const std::vector<uint32_t> jobs = VictimsOn(job, row, cheapest, stopping);
    if (jobs.empty()) return {};
    for (const uint32_t victim : jobs) stopping[victim] = true;
    for (const uint32_t victim : jobs) {
      for_nodes_of(victim, count);
      for_nodes_of(victim, assess);
    }
    victims.insert(victims.end(), jobs.begin(), jobs.end());
  }
  std::sort(victims.begin(), victims.end(),
            [this](uint32_t a, uint32_t b) { return IsCheaper(b, a); });
  std::vector<uint32_t> needed;
  for (const uint32_t victim : victims) {
    stopping[victim] = false;
    for_nodes_of(victim, count);
    if (units >= wanted) continue;
    stopping[victim] = true;
    for_nodes_of(victim, count);
    needed.push_back(victim);
  }
  std::reverse(needed.begin(), needed.end());
  return needed;
}

std::optional<Clearing> Preemptor::FindInRow(const Candidate& job, uint32_t row_index,
                                             const std::set<uint32_t>& preferred) const {
  const Cluster::Row& row = job.cells->rows[row_index];
  const Demand& demand = job.cells->demand;
  if (row.usable_units < demand.units) return std::nullopt;
  const std::optional<std::vector<uint32_t>> own = FindOwnVictims(job);
  if (!own.has_value()) return std::nullopt;
  Clearing clearing{.victims = *own};
  std::vector<uint32_t>& victims = clearing.victims;
  Stopping stopping = stopping_;
  for (const uint32_t victim : victims) stopping[victim] = true;
  if (UnitsAfter(job, row, stopping) < demand.units) {
    const std::vector<uint32_t> others = FindVictims(job, row, stopping);
    if (others.empty()) return std::nullopt;
    for (const uint32_t victim : others) stopping[victim] = true;
    victims.insert(victims.end(), others.begin(), others.end());
  }
  Fit& fit = clearing.fit;
  fit.row = row_index;
  fit.from = now_;
  std::vector<uint32_t> order(preferred.begin(), preferred.end());
  for (uint32_t node = 0; node < row.supplies.size(); ++node) {
    if (preferred.count(node) == 0) order.push_back(node);
  }
  uint32_t missing = demand.units;
  uint64_t taken = 0;
  for (const uint32_t node : order) {
    if (missing == 0) break;
    const uint32_t free = FreeAfter(job, row, node, stopping);
    const Contribution share = ContributionOf(demand, row.supplies[node].usable, free, missing);
    if (share.units == 0) continue;
    missing -= share.units;
    taken += demand.by_node ? TakenOf(demand, row.supplies[node], free) : share.slots;
    fit.shares.push_back({node, share});
    fit.spare.push_back(free - share.slots);
    for (const Cluster::Use& use : cluster_.node(node).uses) {
      if (use.job == Cluster::kNoJob || !stopping[use.job]) continue;
      const RunningJob& stopping = cluster_.running(use.job);
      fit.from = std::max(fit.from, stopping.stopping ? stopping.end : now_ + stopping.grace);
    }
  }
  // The nodes may be too large for the limit.
  if (allowance_.IsExceeded(job, taken, &stopping)) return std::nullopt;
  return clearing;
}

}  // namespace muster::core
