#include "coordinator/core/scheduler/plan/reserve.h"

#include <algorithm>
#include <tuple>

namespace muster::core {
namespace {

bool EndsBefore(const Candidate& job, const Holds::Hold& hold) {
  return hold.from < SteadyTime::Infinite() && job.end <= hold.from;
}

}  // namespace

bool Holds::MayUse(const Candidate& job, const Cluster::Row& row, const Hold& hold) {
  if (EndsBefore(job, hold) || hold.job == job.id) return true;
  const Demand& demand = job.cells->demand;
  if (hold.kind != row.kind && !hold.exclusive && !demand.request.exclusive) return true;
  if (hold.exclusive || demand.request.exclusive) return false;
  const Supply& supply = row.supplies[hold.node];
  return ContributionOf(demand, supply.usable, supply.free, demand.most_units).slots <= hold.spare;
}

std::optional<uint32_t> Holds::FindRow(const Candidate& job) const {
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

std::optional<Fit> Holds::FindFit(const Candidate& job, SteadyTime now, bool may_grow) const {
  std::optional<Fit> best;
  for (uint32_t row = 0; row < job.cells->rows.size(); ++row) {
    std::optional<Fit> fit = FindFit(job, row, now, may_grow);
    if (fit.has_value() && (!best.has_value() || fit->from < best->from)) best = std::move(fit);
  }
  return best;
}

// Follows the ends of running jobs until the job fits. Nodes that are free first are used first.
std::optional<Fit> Holds::FindFit(const Candidate& job, uint32_t row_index, SteadyTime now,
                                  bool may_grow) const {
  const Cluster::Row& row = job.cells->rows[row_index];
  const Demand& demand = job.cells->demand;
  std::vector<uint32_t> free(row.supplies.size());
  std::vector<uint32_t> in_use(row.supplies.size());
  std::vector<uint32_t> fitting;
  uint64_t units = 0;
  const auto units_of = [&](uint32_t node) {
    return ContributionOf(demand, row.supplies[node].usable, free[node], demand.units).units;
  };
  for (uint32_t node = 0; node < free.size(); ++node) {
    if (by_node_[node] != kNone) continue;
    free[node] = row.supplies[node].free;
    for (const Cluster::Use& use : cluster_.node(node).uses) in_use[node] += use.slots;
    const uint32_t contributed = units_of(node);
    units += contributed;
    if (contributed > 0) fitting.push_back(node);
  }
  Fit fit;
  fit.row = row_index;
  if (units >= demand.units) fit.from = now;
  for (const auto& [end, index] : cluster_.ends()) {
    if (units >= demand.units) break;
    for (const NodeName& name : cluster_.running(index).nodes) {
      const uint32_t node = cluster_.IndexOf(name);
      if (node == free.size() || by_node_[node] != kNone) continue;
      const uint32_t before = units_of(node);
      for (const Cluster::Use& use : cluster_.node(node).uses) {
        if (use.job != index) continue;
        in_use[node] -= use.slots;
        if (use.kind == row.kind && !demand.request.exclusive) free[node] += use.slots;
      }
      // Also the slots that an exclusive job did not use.
      const uint32_t usable = row.supplies[node].usable;
      free[node] = in_use[node] == 0 ? usable : std::min(free[node], usable);
      const uint32_t after = units_of(node);
      units += after - before;
      if (before == 0 && after > 0) fitting.push_back(node);
    }
    if (units >= demand.units) fit.from = std::max(now, end);
  }
  if (units < demand.units) {
    fit = GuessFit(job, row_index, free, may_grow);
    if (fit.shares.empty()) return std::nullopt;
    return fit;
  }
  uint32_t missing = demand.units;
  for (const uint32_t node : fitting) {
    if (missing == 0) break;
    const Contribution share =
        ContributionOf(demand, row.supplies[node].usable, free[node], missing);
    if (share.units == 0) continue;
    missing -= share.units;
    fit.shares.push_back({node, share});
    fit.spare.push_back(free[node] - share.slots);
  }
  return fit;
}

// Chooses nodes when it is not known when enough of them are free: those that miss the fewest
// slots. As no job is placed on them, they never come to miss more, so the choice converges.
Fit Holds::GuessFit(const Candidate& job, uint32_t row_index, const std::vector<uint32_t>& free,
                    bool may_grow) const {
  const Cluster::Row& row = job.cells->rows[row_index];
  const Demand& demand = job.cells->demand;
  std::vector<std::tuple<uint32_t, uint32_t>> nodes;  // missing slots, node
  for (uint32_t node = 0; node < free.size(); ++node) {
    if (by_node_[node] != kNone) continue;
    const uint32_t usable = row.supplies[node].usable;
    const Contribution share = ContributionOf(demand, usable, usable, demand.units);
    if (share.units == 0) continue;
    nodes.emplace_back(share.slots - std::min(share.slots, free[node]), node);
  }
  std::sort(nodes.begin(), nodes.end());
  Fit fit;
  fit.row = row_index;
  uint32_t missing = demand.units;
  for (const auto& [short_of, node] : nodes) {
    if (missing == 0) break;
    const uint32_t usable = row.supplies[node].usable;
    const Contribution share = ContributionOf(demand, usable, usable, missing);
    missing -= share.units;
    fit.shares.push_back({node, share});
    const uint32_t free_now = row.supplies[node].free;
    fit.spare.push_back(free_now - std::min(free_now, share.slots));
  }
  return missing == 0 || may_grow ? fit : Fit();
}

Reservation Holds::Add(const Candidate& job, const Fit& fit, bool is_claim) {
  Reservation reservation;
  reservation.job = job.id;
  reservation.from = fit.from;
  reservation.after_preemption = is_claim;
  const Cluster::Row& row = job.cells->rows[fit.row];
  for (size_t i = 0; i < fit.shares.size(); ++i) {
    const uint32_t node = fit.shares[i].first;
    reservation.nodes.push_back(cluster_.node(node).node->name());
    if (by_node_[node] == kNone) {
      by_node_[node] = static_cast<uint32_t>(holds_.size());
      holds_.push_back({node, row.kind, fit.from, fit.spare[i], job.cells->demand.request.exclusive,
                        is_claim, job.id});
      continue;
    }
    // Another claim: the stricter of both.
    Hold& hold = holds_[by_node_[node]];
    hold.exclusive |= job.cells->demand.request.exclusive || hold.kind != row.kind;
    hold.from = std::min(hold.from, fit.from);
    hold.spare = std::min(hold.spare, fit.spare[i]);
    hold.job = JobId();
  }
  return reservation;
}

void Holds::NoteStart(const Candidate& job, uint32_t row,
                      const std::vector<std::pair<NodeName, uint32_t>>& slots) {
  for (const auto& [name, count] : slots) {
    const uint32_t node = cluster_.IndexOf(name);
    if (node == cluster_.node_count() || by_node_[node] == kNone) continue;
    Hold& hold = holds_[by_node_[node]];
    if (hold.kind != job.cells->rows[row].kind || EndsBefore(job, hold)) continue;
    hold.spare -= std::min(hold.spare, count);
  }
}

}  // namespace muster::core
