#include "coordinator/core/scheduler/placement.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "coordinator/core/scheduler/rank_map.h"

namespace muster::core {
namespace {

constexpr char kNotEnoughDevices[] =
    ", and there are not enough other GPUs; set resources.share_device: true to allow it";

// Returns whether several workers of one machine offer the same GPU.
bool OffersShareDevices(const NodeMap& nodes) {
  absl::flat_hash_set<absl::string_view> uuids;
  for (const auto& [name, node] : nodes) {
    for (const v1::Slot& slot : node.hello.slots()) {
      if (!slot.uuid().empty() && !uuids.insert(slot.uuid()).second) return true;
    }
  }
  return false;
}

}  // namespace

std::vector<v1::NodePlacement> Place(const v1::Resources& resources, const NodeMap& nodes,
                                     Offers offers, bool share_device) {
  Shape shape = ShapeOf(resources);
  shape.share_device = share_device;
  std::vector<v1::NodePlacement> placements;
  for (const std::string& kind : SlotKinds(resources)) {
    std::vector<FreeNode> offered;
    for (const auto& [name, node] : nodes) {
      std::optional<FreeNode> offer =
          offers == Offers::kNow ? node.Offer(kind) : node.IdleOffer(kind);
      if (offer.has_value()) offered.push_back(std::move(*offer));
    }
    placements = MapRanks(shape, std::move(offered));
    if (!placements.empty()) break;
  }
  return placements;
}

std::string SharingText(const v1::Resources& resources, const NodeMap& nodes, Offers offers) {
  if (resources.share_device() || !OffersShareDevices(nodes)) return "";
  std::map<std::string, std::string> ranks;  // by UUID
  for (const v1::NodePlacement& placement :
       Place(resources, nodes, offers, /*share_device=*/true)) {
    const Node& node = nodes.at(NodeName(placement.node()));
    for (const v1::RankRecord& rank : placement.ranks()) {
      for (const uint32_t slot : rank.slots()) {
        const std::string uuid = node.UuidOf(slot);
        if (uuid.empty()) continue;
        std::string rank_name =
            absl::StrCat("rank ", rank.rank(), " (node ", placement.node(), ")");
        const auto [other, first] = ranks.emplace(uuid, rank_name);
        if (first) continue;
        return absl::StrCat(other->second, " and ", rank_name, " would be on the same GPU, ",
                            node.NameOfSlot(slot));
      }
    }
  }
  return "";
}

Decision Decide(const v1::Resources& resources, const NodeMap& nodes, absl::Duration lease,
                SteadyTime now) {
  Decision decision;
  decision.placements = Place(resources, nodes, Offers::kNow, resources.share_device());
  if (!decision.placements.empty()) return decision;
  const std::string sharing = SharingText(resources, nodes, Offers::kIdle);
  if (sharing.empty()) return decision;
  if (!Place(resources, nodes, Offers::kIdle, /*share_device=*/false).empty()) return decision;
  // Nodes that a restarted coordinator knows only from their records may still reconnect.
  SteadyTime all_known = now;
  for (const auto& [name, node] : nodes) {
    if (!node.seen) all_known = std::max(all_known, node.last_heard + lease);
  }
  if (all_known > now) {
    decision.retry_at = all_known;
  } else {
    decision.refusal = absl::StrCat(sharing, kNotEnoughDevices);
  }
  return decision;
}

}  // namespace muster::core
