#include "coordinator/core/scheduler/plan/cluster.h"

#include <algorithm>
#include <optional>

namespace muster::core {
namespace {

// The units that one node contributes to a job before any of its ranks is placed.
uint32_t UnitsOf(const Demand& demand, uint32_t usable, uint32_t free) {
  return ContributionOf(demand, usable, free, demand.most_units).units;
}

void CountSize(const Demand& demand, const Supply& supply, int by, Cluster::Row& row) {
  const uint32_t units = UnitsOf(demand, supply.usable, supply.usable);
  if (units == 0) return;
  const std::pair size(TakenOf(demand, supply, supply.usable), units);
  if ((row.sizes[size] += by) == 0) row.sizes.erase(size);
}

}  // namespace

// ------------------------------------------------------------------------------------------------
// running jobs

void Cluster::SetRunning(RunningJob job) {
  const auto [entry, added] = running_index_.try_emplace(job.id.value(), 0);
  if (added) {
    if (free_running_.empty()) {
      entry->second = static_cast<uint32_t>(running_.size());
      running_.emplace_back();
    } else {
      entry->second = free_running_.back();
      free_running_.pop_back();
    }
  } else {
    ends_.erase({running_[entry->second].end, entry->second});
  }
  if (job.end < SteadyTime::Infinite()) ends_.insert({job.end, entry->second});
  running_sequences_[{job.owner, job.job_class}].insert(job.sequence);
  running_[entry->second] = std::move(job);
}

void Cluster::RemoveRunning(const JobId& id) {
  const auto entry = running_index_.find(id.value());
  if (entry == running_index_.end()) return;
  const RunningJob& job = running_[entry->second];
  ends_.erase({job.end, entry->second});
  const auto sequences = running_sequences_.find({job.owner, job.job_class});
  sequences->second.erase(job.sequence);
  if (sequences->second.empty()) running_sequences_.erase(sequences);
  running_[entry->second] = RunningJob();
  free_running_.push_back(entry->second);
  running_index_.erase(entry);
}

const RunningJob* Cluster::FindRunning(const JobId& id) const {
  const auto entry = running_index_.find(id.value());
  return entry == running_index_.end() ? nullptr : &running_[entry->second];
}

bool Cluster::RunsEarlier(const std::string& owner, JobClass job_class, uint64_t sequence) const {
  const auto sequences = running_sequences_.find({owner, job_class});
  return sequences != running_sequences_.end() && *sequences->second.begin() < sequence;
}

// ------------------------------------------------------------------------------------------------
// nodes

uint32_t Cluster::KindOf(const std::string& kind) {
  return kinds_.try_emplace(kind, kinds_.size()).first->second;
}

void Cluster::ReadUses(NodeState& state) {
  state.uses.clear();
  for (const auto& [slot, rank] : state.node->ranks.by_slot()) {
    uint32_t job = kNoJob;
    const auto found = running_index_.find(rank.job.value());
    if (found != running_index_.end() && running_[found->second].generation == rank.generation &&
        state.node->ranks.FindUnkillable(slot) == nullptr) {
      job = found->second;
    }
    const uint32_t kind = KindOf(state.node->KindOf(slot));
    const auto use = std::find_if(state.uses.begin(), state.uses.end(), [&](const Use& other) {
      return other.job == job && other.kind == kind;
    });
    if (use == state.uses.end()) {
      state.uses.push_back({job, kind, 1});
    } else {
      ++use->slots;
    }
  }
}

void Cluster::AddDevices(const NodeState& state) {
  slot_count_ += state.slots;
  for (const std::string& uuid : state.devices) {
    if (++devices_[uuid] == 2) ++shared_devices_;
  }
}

void Cluster::RemoveDevices(const NodeState& state) {
  slot_count_ -= state.slots;
  for (const std::string& uuid : state.devices) {
    const auto slots = devices_.find(uuid);
    if (--slots->second == 1) --shared_devices_;
    if (slots->second == 0) devices_.erase(slots);
  }
}

void Cluster::Read(NodeState& state) {
  RemoveDevices(state);
  const Node& node = *state.node;
  state.slots = node.state == v1::LOST ? 0 : static_cast<uint32_t>(node.hello.slots_size());
  state.devices.clear();
  for (const v1::Slot& slot : node.hello.slots()) {
    if (!slot.uuid().empty()) state.devices.push_back(slot.uuid());
  }
  AddDevices(state);
  ReadUses(state);
}

void Cluster::Rebuild(const NodeMap& nodes) {
  nodes_.clear();
  node_index_.clear();
  cells_.clear();
  slot_count_ = 0;
  devices_.clear();
  shared_devices_ = 0;
  for (const auto& [name, node] : nodes) {
    node_index_[name.value()] = static_cast<uint32_t>(nodes_.size());
    nodes_.push_back({&node, {}, 0, {}});
    Read(nodes_.back());
  }
}

void Cluster::Refresh(const std::set<NodeName>& names, const ShapeTable& shapes) {
  for (const NodeName& name : names) {
    const uint32_t index = IndexOf(name);
    if (index == nodes_.size()) continue;
    Read(nodes_[index]);
    const Node& node = *nodes_[index].node;
    for (uint32_t shape = 0; shape < cells_.size(); ++shape) {
      Cells& cells = cells_[shape];
      if (cells.serial != shapes[shape].serial) continue;  // no queued job has it any more
      for (size_t i = 0; i < cells.rows.size(); ++i) {
        SetSupply(cells, cells.rows[i], index,
                  SupplyOf(cells.demand.request, node, cells.demand.request.kinds[i]));
      }
    }
  }
}

uint32_t Cluster::IndexOf(const NodeName& name) const {
  const auto entry = node_index_.find(name.value());
  return entry == node_index_.end() ? static_cast<uint32_t>(nodes_.size()) : entry->second;
}

void Cluster::SetSupply(const Cells& cells, Row& row, uint32_t node, Supply supply) {
  Supply& old = row.supplies[node];
  const Demand& demand = cells.demand;
  row.free_units -= UnitsOf(demand, old.usable, old.free);
  row.usable_units -= UnitsOf(demand, old.usable, old.usable);
  if (demand.by_node) {
    CountSize(demand, old, -1, row);
    CountSize(demand, supply, 1, row);
  }
  old = supply;
  row.free_units += UnitsOf(demand, supply.usable, supply.free);
  row.usable_units += UnitsOf(demand, supply.usable, supply.usable);
}

const Cluster::Cells& Cluster::CellsOf(uint32_t shape_index, const ShapeTable::Shape& shape) {
  if (cells_.size() <= shape_index) cells_.resize(shape_index + 1);
  Cells& cells = cells_[shape_index];
  if (cells.serial == shape.serial) return cells;
  cells = {shape.serial, DemandOf(shape.resources), shape.resources, {}};
  for (const std::string& kind : cells.demand.request.kinds) {
    Row& row = cells.rows.emplace_back();
    row.kind = KindOf(kind);
    row.supplies.resize(nodes_.size());
    for (uint32_t node = 0; node < nodes_.size(); ++node) {
      SetSupply(cells, row, node, SupplyOf(cells.demand.request, *nodes_[node].node, kind));
    }
  }
  return cells;
}

uint32_t Cluster::LeastSlotsOf(const Cells& cells) {
  const uint32_t least = LeastSlots(cells.demand);
  if (!cells.demand.by_node) return least;
  std::optional<uint64_t> smallest;  // of all kinds
  for (const Row& row : cells.rows) {
    if (row.usable_units < cells.demand.units) continue;
    uint64_t slots = 0;
    uint64_t missing = cells.demand.units;
    for (const auto& [size, nodes] : row.sizes) {
      const uint64_t count = std::min<uint64_t>(nodes, (missing + size.second - 1) / size.second);
      slots += count * size.first;
      missing -= std::min(missing, count * size.second);
      if (missing == 0) break;
    }
    smallest = std::min(smallest.value_or(slots), slots);
  }
  return static_cast<uint32_t>(smallest.value_or(least));
}

const Cluster::Row* Cluster::FindFitting(const Cells& cells) {
  for (const Row& row : cells.rows) {
    if (row.free_units >= cells.demand.units) return &row;
  }
  return nullptr;
}

bool Cluster::FitsVacant(const Cells& cells) {
  return std::any_of(cells.rows.begin(), cells.rows.end(),
                     [&cells](const Row& row) { return row.usable_units >= cells.demand.units; });
}

}  // namespace muster::core
