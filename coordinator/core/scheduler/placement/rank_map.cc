#include "coordinator/core/scheduler/placement/rank_map.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "common/limits.h"
#include "coordinator/core/scheduler/placement/device_choice.h"
#include "coordinator/core/scheduler/placement/node_choice.h"

namespace muster::core {
namespace {

// The physical GPUs by UUID: workers of one machine may offer the same GPU.
class PhysicalDevices {
 public:
  explicit PhysicalDevices(const std::vector<FreeNode>& nodes) {
    for (const FreeNode& node : nodes) {
      for (const uint32_t slot : node.free_slots) {
        const absl::string_view uuid = UuidOf(node, slot);
        if (!uuid.empty()) ++offers_[uuid];
      }
    }
  }

  // Returns the node's free slots whose GPUs are not taken yet.
  std::vector<uint32_t> Left(const FreeNode& node) const {
    absl::flat_hash_set<absl::string_view> own;
    std::vector<uint32_t> left;
    for (const uint32_t slot : node.free_slots) {
      const absl::string_view uuid = UuidOf(node, slot);
      if (!uuid.empty() && (taken_.count(uuid) != 0 || !own.insert(uuid).second)) continue;
      left.push_back(slot);
    }
    return left;
  }
  // Returns the slots of `left` that no other node offers, if there are enough of them; otherwise
  // all of `left`.
  std::vector<uint32_t> Preferred(const FreeNode& node, const std::vector<uint32_t>& left,
                                  size_t count) const {
    std::vector<uint32_t> alone;
    for (const uint32_t slot : left) {
      const absl::string_view uuid = UuidOf(node, slot);
      if (uuid.empty() || offers_.at(uuid) == 1) alone.push_back(slot);
    }
    return alone.size() < count ? left : alone;
  }
  void Take(const FreeNode& node, const std::vector<uint32_t>& slots) {
    for (const uint32_t slot : slots) {
      const absl::string_view uuid = UuidOf(node, slot);
      if (!uuid.empty()) taken_.insert(uuid);
    }
  }

 private:
  // Slots are usually numbered from 0, but need not be.
  static absl::string_view UuidOf(const FreeNode& node, uint32_t slot) {
    if (node.slots == nullptr) return "";
    if (slot < static_cast<uint32_t>(node.slots->size())) {
      const v1::Slot& guess = (*node.slots)[static_cast<int>(slot)];
      if (guess.index() == slot) return guess.uuid();
    }
    for (const v1::Slot& offered : *node.slots) {
      if (offered.index() == slot) return offered.uuid();
    }
    return "";
  }

  absl::flat_hash_map<absl::string_view, uint32_t> offers_;
  absl::flat_hash_set<absl::string_view> taken_;
};

// A node of the job, and the slots that its ranks take.
struct TakenNode {
  const FreeNode* node;
  Share share;
  std::vector<uint32_t> slots;
};

std::vector<v1::NodePlacement> NumberRanks(const std::vector<TakenNode>& nodes) {
  std::vector<v1::NodePlacement> placements;
  uint32_t rank = 0;
  for (const TakenNode& taken : nodes) {
    v1::NodePlacement& placement = placements.emplace_back();
    placement.set_node(taken.node->name);
    placement.set_incarnation(taken.node->incarnation);
    placement.set_address(taken.node->address);
    auto slot = taken.slots.begin();
    for (uint32_t local_rank = 0; local_rank < taken.share.ranks; ++local_rank) {
      v1::RankRecord& record = *placement.add_ranks();
      record.set_rank(rank++);
      record.set_local_rank(local_rank);
      for (uint32_t i = 0; i < taken.share.slots_per_rank; ++i) record.add_slots(*slot++);
    }
  }
  return placements;
}

}  // namespace

std::vector<v1::NodePlacement> MapRanks(const Shape& shape, std::vector<FreeNode> nodes) {
  PhysicalDevices devices(nodes);
  DeviceChooser chooser;
  std::vector<TakenNode> taken;
  uint32_t ranks = 0;
  for (NodeChoice choice(shape, nodes); !choice.IsOver(taken.size(), ranks);) {
    const FreeNode& node = choice.Next(ranks);
    std::vector<uint32_t> slots = shape.share_device ? node.free_slots : devices.Left(node);
    std::optional<Share> share = ShareOf(shape, node.slot_count, slots.size());
    if (!share.has_value()) continue;
    if (shape.total_ranks > 0) share->ranks = std::min(share->ranks, shape.total_ranks - ranks);
    if (uint64_t{ranks} + share->ranks > limits::kRanksPerJob) break;
    if (!shape.share_device) slots = devices.Preferred(node, slots, share->slots());
    slots = chooser.Choose(node.slots, slots, share->slots());
    devices.Take(node, slots);
    ranks += share->ranks;
    taken.push_back({&node, *share, std::move(slots)});
  }
  if (!Suffices(shape, taken.size(), ranks)) return {};
  std::sort(taken.begin(), taken.end(), [](const TakenNode& a, const TakenNode& b) {
    return IsPlacedBefore(*a.node, *b.node);
  });
  return NumberRanks(taken);
}

}  // namespace muster::core
