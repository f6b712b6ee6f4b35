#include "coordinator/core/scheduler/placement/placement.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "coordinator/core/scheduler/placement/rank_map.h"
#include "coordinator/core/scheduler/placement/request.h"

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

// Maps the ranks to slots of one kind.
std::vector<v1::NodePlacement> PlaceOn(const std::string& kind, const Request& request,
                                       const NodeMap& nodes, Offers offers,
                                       const std::string& avoided) {
  std::vector<FreeNode> offered;
  for (const auto& [name, node] : nodes) {
    if (name.value() == avoided || !WhyUnsuitable(request, node).empty()) continue;
    std::optional<FreeNode> offer = node.Offer(kind, offers);
    if (!offer.has_value()) continue;
    Restrict(request, node, /*vacant=*/offers != Offers::kNow, *offer);
    offered.push_back(std::move(*offer));
  }
  return MapRanks(request.shape, std::move(offered));
}

}  // namespace

std::vector<v1::NodePlacement> Place(const v1::Resources& resources, const NodeMap& nodes,
                                     Offers offers, bool share_device, const std::string& avoided) {
  Request request = RequestOf(resources);
  request.shape.share_device = share_device;
  for (const std::string& kind : request.kinds) {
    std::vector<v1::NodePlacement> placements = PlaceOn(kind, request, nodes, offers, avoided);
    if (placements.empty() && !avoided.empty()) {
      placements = PlaceOn(kind, request, nodes, offers, /*avoided=*/"");
    }
    if (!placements.empty()) return placements;
  }
  return {};
}

uint32_t TakenSlots(const v1::NodePlacement& placement, const Node& node, bool exclusive) {
  if (exclusive) return node.UsableSlots();
  uint32_t slots = 0;
  for (const v1::RankRecord& rank : placement.ranks()) slots += rank.slots_size();
  return slots;
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

namespace {

// SharingText, if the job would not fit on any of the known nodes without sharing.
std::string UnavoidableSharing(const v1::Resources& resources, const NodeMap& nodes) {
  const std::string sharing = SharingText(resources, nodes, Offers::kAll);
  if (sharing.empty()) return "";
  const bool avoidable = !Place(resources, nodes, Offers::kAll, /*share_device=*/false).empty();
  return avoidable ? "" : sharing;
}

}  // namespace

SteadyTime AllKnownAt(const NodeMap& nodes, absl::Duration lease, SteadyTime now) {
  SteadyTime all_known = now;
  for (const auto& [name, node] : nodes) {
    if (!node.seen) all_known = std::max(all_known, node.last_heard + lease);
  }
  return all_known;
}

bool FitsVacant(const v1::Resources& resources, const NodeMap& nodes) {
  return !Place(resources, nodes, Offers::kVacant, resources.share_device()).empty() ||
         !UnavoidableSharing(resources, nodes).empty();
}

Decision Decide(const v1::Resources& resources, const NodeMap& nodes, absl::Duration lease,
                SteadyTime now, const std::string& avoided) {
  Decision decision;
  decision.placements = Place(resources, nodes, Offers::kNow, resources.share_device(), avoided);
  if (!decision.placements.empty()) return decision;
  const std::string sharing = UnavoidableSharing(resources, nodes);
  if (sharing.empty()) return decision;
  const SteadyTime all_known = AllKnownAt(nodes, lease, now);
  if (all_known > now) {
    decision.retry_at = all_known;
  } else {
    decision.refusal = absl::StrCat(sharing, kNotEnoughDevices);
  }
  return decision;
}

}  // namespace muster::core
