#include "coordinator/core/scheduler/placement/demand.h"

#include <algorithm>
#include <optional>

namespace muster::core {

Demand DemandOf(const v1::Resources& resources) {
  Demand demand;
  demand.request = RequestOf(resources);
  const Shape& shape = demand.request.shape;
  demand.in_ranks = shape.total_ranks > 0;
  demand.units = demand.in_ranks ? shape.total_ranks : shape.min_nodes;
  demand.most_units = demand.in_ranks ? shape.total_ranks : shape.max_nodes;
  demand.by_node = demand.request.exclusive || !shape.devices_per_rank.has_value();
  return demand;
}

uint32_t LeastSlots(const Demand& demand) {
  const Shape& shape = demand.request.shape;
  const uint32_t ranks = demand.in_ranks ? demand.units : demand.units * shape.ranks_per_node;
  return ranks * shape.devices_per_rank.value_or(1);
}

Supply SupplyOf(const Request& request, const Node& node, const std::string& kind) {
  Supply supply;
  if (!WhyUnsuitable(request, node).empty()) return supply;
  if (std::optional<FreeNode> vacant = node.Offer(kind, Offers::kVacant)) {
    Restrict(request, node, /*vacant=*/true, *vacant);
    supply.usable = static_cast<uint16_t>(vacant->free_slots.size());
    if (request.exclusive) supply.whole = static_cast<uint16_t>(node.UsableSlots());
  }
  if (std::optional<FreeNode> offer = node.Offer(kind)) {
    Restrict(request, node, /*vacant=*/false, *offer);
    supply.free = static_cast<uint16_t>(offer->free_slots.size());
  }
  return supply;
}

Contribution ContributionOf(const Demand& demand, uint32_t usable, uint32_t free, uint32_t most) {
  const bool exclusive = demand.request.exclusive;
  if (usable == 0 || most == 0 || (exclusive && free < usable)) return {};
  const std::optional<Share> share = ShareOf(demand.request.shape, usable, free);
  if (!share.has_value()) return {};
  Contribution contribution;
  contribution.units = demand.in_ranks ? std::min(most, share->ranks) : 1;
  contribution.slots =
      demand.in_ranks ? contribution.units * share->slots_per_rank : share->slots();
  if (exclusive) contribution.slots = usable;
  return contribution;
}

uint32_t TakenOf(const Demand& demand, const Supply& supply, uint32_t free) {
  const Contribution share = ContributionOf(demand, supply.usable, free, demand.most_units);
  return share.units > 0 && demand.request.exclusive ? supply.whole : share.slots;
}

}  // namespace muster::core
