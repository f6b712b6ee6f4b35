#include "coordinator/core/scheduler/rank_map.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "common/limits.h"
#include "coordinator/core/scheduler/device_choice.h"

namespace muster::core {
namespace {

// Removes the leading run of digits (or of non-digits) from `text` and returns it.
absl::string_view TakeRun(absl::string_view& text) {
  const bool digits = absl::ascii_isdigit(static_cast<unsigned char>(text.front()));
  size_t length = 1;
  while (length < text.size() &&
         absl::ascii_isdigit(static_cast<unsigned char>(text[length])) == digits) {
    ++length;
  }
  const absl::string_view run = text.substr(0, length);
  text.remove_prefix(length);
  return run;
}

absl::string_view WithoutZeros(absl::string_view digits) {
  const size_t first = digits.find_first_not_of('0');
  return first == absl::string_view::npos ? absl::string_view() : digits.substr(first);
}

bool IsNumber(absl::string_view run) {
  return absl::ascii_isdigit(static_cast<unsigned char>(run.front()));
}

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

}  // namespace

Shape ShapeOf(const v1::Resources& resources) {
  Shape shape;
  shape.min_nodes = std::max(1u, resources.nodes().min());
  shape.max_nodes = std::max(shape.min_nodes, resources.nodes().max());
  shape.ranks_per_node = std::max(1u, resources.ranks_per_node());
  uint32_t devices = 1;
  if (resources.devices_per_rank() == "all") {
    shape.devices_per_rank = std::nullopt;
  } else if (absl::SimpleAtoi(resources.devices_per_rank(), &devices)) {
    shape.devices_per_rank = std::max(1u, devices);
  }
  shape.share_device = resources.share_device();
  return shape;
}

std::vector<std::string> SlotKinds(const v1::Resources& resources) {
  if (resources.device().empty() || resources.device() == "auto") return {"gpu", "cpu"};
  return {resources.device()};
}

bool NaturalLess(absl::string_view a, absl::string_view b) {
  const absl::string_view whole_a = a;
  const absl::string_view whole_b = b;
  while (!a.empty() && !b.empty()) {
    const absl::string_view run_a = TakeRun(a);
    const absl::string_view run_b = TakeRun(b);
    if (IsNumber(run_a) && IsNumber(run_b)) {
      const absl::string_view digits_a = WithoutZeros(run_a);
      const absl::string_view digits_b = WithoutZeros(run_b);
      if (digits_a.size() != digits_b.size()) return digits_a.size() < digits_b.size();
      if (digits_a != digits_b) return digits_a < digits_b;
    } else if (run_a != run_b) {
      return run_a < run_b;
    }
  }
  if (a.empty() != b.empty()) return a.empty();
  return whole_a < whole_b;  // equal except for leading zeros
}

bool IsPlacedBefore(const FreeNode& a, const FreeNode& b) {
  if (a.last_resort != b.last_resort) return b.last_resort;
  if (a.rack != b.rack) return NaturalLess(a.rack, b.rack);
  return NaturalLess(a.name, b.name);
}

std::optional<uint32_t> SlotsPerRank(const Shape& shape, uint32_t slot_count, size_t free) {
  if (!shape.devices_per_rank.has_value()) {
    if (free < slot_count || slot_count < shape.ranks_per_node) return std::nullopt;
    return slot_count / shape.ranks_per_node;
  }
  const uint64_t needed = uint64_t{*shape.devices_per_rank} * shape.ranks_per_node;
  if (free < needed) return std::nullopt;
  return shape.devices_per_rank;
}

std::vector<v1::NodePlacement> MapRanks(const Shape& shape, std::vector<FreeNode> nodes) {
  std::sort(nodes.begin(), nodes.end(), IsPlacedBefore);
  PhysicalDevices devices(nodes);
  DeviceChooser chooser;
  std::vector<v1::NodePlacement> placements;
  uint32_t rank = 0;
  for (const FreeNode& node : nodes) {
    if (placements.size() == shape.max_nodes) break;
    if (uint64_t{rank} + shape.ranks_per_node > limits::kRanksPerJob) break;
    std::vector<uint32_t> slots = shape.share_device ? node.free_slots : devices.Left(node);
    const std::optional<uint32_t> per_rank = SlotsPerRank(shape, node.slot_count, slots.size());
    if (!per_rank.has_value()) continue;
    const size_t count = size_t{*per_rank} * shape.ranks_per_node;
    if (!shape.share_device) slots = devices.Preferred(node, slots, count);
    slots = chooser.Choose(node.slots, slots, count);
    devices.Take(node, slots);
    v1::NodePlacement& placement = placements.emplace_back();
    placement.set_node(node.name);
    placement.set_incarnation(node.incarnation);
    placement.set_address(node.address);
    auto slot = slots.begin();
    for (uint32_t local_rank = 0; local_rank < shape.ranks_per_node; ++local_rank) {
      v1::RankRecord& record = *placement.add_ranks();
      record.set_rank(rank++);
      record.set_local_rank(local_rank);
      for (uint32_t i = 0; i < *per_rank; ++i) record.add_slots(*slot++);
    }
  }
  if (placements.size() < shape.min_nodes) placements.clear();
  return placements;
}

}  // namespace muster::core
