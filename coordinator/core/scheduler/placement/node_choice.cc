#include "coordinator/core/scheduler/placement/node_choice.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "coordinator/core/scheduler/placement/natural_order.h"

namespace muster::core {

bool IsPlacedBefore(const FreeNode& a, const FreeNode& b) {
  if (a.last_resort != b.last_resort) return b.last_resort;
  if (a.rack != b.rack) return NaturalLess(a.rack, b.rack);
  return NaturalLess(a.name, b.name);
}

NodeChoice::NodeChoice(const Shape& shape, const std::vector<FreeNode>& nodes) : shape_(shape) {
  std::vector<Candidate> usual, last_resort;
  for (const FreeNode& node : nodes) {
    const std::optional<Share> share = ShareOf(shape, node.slot_count, node.free_slots.size());
    if (share.has_value()) (node.last_resort ? last_resort : usual).push_back({&node, *share});
  }
  Order(std::move(usual));
  Order(std::move(last_resort));
}

bool NodeChoice::IsChosenBefore(const Shape& shape, const Candidate& a, const Candidate& b) {
  if (a.node->preferred != b.node->preferred) return a.node->preferred;
  // The largest shares need the fewest nodes.
  if (shape.total_ranks > 0 && a.share.ranks != b.share.ranks) {
    return a.share.ranks > b.share.ranks;
  }
  if (a.node->free_slots.size() != b.node->free_slots.size()) {
    return a.node->free_slots.size() < b.node->free_slots.size();
  }
  return IsPlacedBefore(*a.node, *b.node);
}

void NodeChoice::Order(std::vector<Candidate> candidates) {
  struct Rack {
    std::vector<Candidate> candidates;
    uint64_t preferred = 0;
    uint64_t ranks = 0;
    bool holds_job = false;  // it has as many nodes or ranks as the job can use
  };
  std::map<std::string, Rack> racks;
  const uint64_t usable_nodes = std::min<uint64_t>(shape_.max_nodes, candidates.size());
  for (const Candidate& candidate : candidates) {
    Rack& rack = racks[candidate.node->rack];
    rack.candidates.push_back(candidate);
    rack.preferred += candidate.node->preferred ? 1 : 0;
    rack.ranks += candidate.share.ranks;
  }
  std::vector<std::pair<const std::string, Rack>*> order;
  for (auto& entry : racks) {
    Rack& rack = entry.second;
    rack.holds_job = shape_.total_ranks > 0 ? rack.ranks >= shape_.total_ranks
                                            : rack.candidates.size() >= usable_nodes;
    order.push_back(&entry);
  }
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    if (a->second.preferred != b->second.preferred) {
      return a->second.preferred > b->second.preferred;
    }
    if (a->second.holds_job != b->second.holds_job) return a->second.holds_job;
    const size_t size_a = a->second.candidates.size();
    const size_t size_b = b->second.candidates.size();
    if (size_a != size_b) return a->second.holds_job ? size_a < size_b : size_a > size_b;
    return NaturalLess(a->first, b->first);
  });
  for (auto* const entry : order) {
    std::vector<Candidate>& in_rack = entry->second.candidates;
    std::sort(in_rack.begin(), in_rack.end(), [this](const Candidate& a, const Candidate& b) {
      return IsChosenBefore(shape_, a, b);
    });
    order_.insert(order_.end(), in_rack.begin(), in_rack.end());
  }
}

bool NodeChoice::IsOver(size_t nodes, uint32_t ranks) const {
  return next_ == order_.size() || IsComplete(shape_, nodes, ranks);
}

const FreeNode& NodeChoice::Next(uint32_t ranks) {
  const Candidate& first = order_[next_];
  if (shape_.total_ranks > 0 && first.share.ranks > shape_.total_ranks - ranks) {
    // The rest fits on one node: the smallest such node of the rack takes it.
    const uint32_t rest = shape_.total_ranks - ranks;
    size_t best = next_;
    for (size_t i = next_ + 1; i < order_.size() && order_[i].node->rack == first.node->rack; ++i) {
      if (order_[i].share.ranks >= rest && order_[i].share.ranks < order_[best].share.ranks) {
        best = i;
      }
    }
    std::rotate(order_.begin() + next_, order_.begin() + best, order_.begin() + best + 1);
  }
  return *order_[next_++].node;
}

}  // namespace muster::core
