#include "coordinator/core/scheduler/placement/request.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace muster::core {

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
  shape.total_ranks = resources.ranks();
  return shape;
}

std::vector<std::string> SlotKinds(const v1::Resources& resources) {
  if (!resources.gpu_model().empty() || resources.gpu_memory() > 0) return {"gpu"};
  if (resources.device().empty() || resources.device() == "auto") return {"gpu", "cpu"};
  return {resources.device()};
}

Request RequestOf(const v1::Resources& resources) {
  Request request;
  request.shape = ShapeOf(resources);
  request.kinds = SlotKinds(resources);
  request.select = {resources.select().begin(), resources.select().end()};
  request.excluded = {resources.exclude_nodes().begin(), resources.exclude_nodes().end()};
  request.preferred = {resources.prefer_nodes().begin(), resources.prefer_nodes().end()};
  request.exclusive = resources.exclusive();
  request.gpu_model = absl::AsciiStrToLower(resources.gpu_model());
  request.gpu_memory_bytes = resources.gpu_memory();
  return request;
}

std::string WhyUnsuitable(const Request& request, const Node& node) {
  if (request.excluded.count(node.record.name()) != 0) return "excluded by the job";
  const auto& labels = node.hello.labels();
  for (const auto& [name, value] : request.select) {
    const auto label = labels.find(name);
    if (label == labels.end()) return absl::StrCat("has no label ", name, " (", value, " needed)");
    if (label->second != value) {
      return absl::StrCat("label ", name, " is ", label->second, ", not ", value);
    }
  }
  return "";
}

bool Accepts(const Request& request, const v1::Slot& slot) {
  if (slot.kind() != "gpu") return true;
  return slot.device().memory_bytes() >= request.gpu_memory_bytes &&
         absl::StrContains(absl::AsciiStrToLower(slot.device().name()), request.gpu_model);
}

void Restrict(const Request& request, const Node& node, bool vacant, FreeNode& offer) {
  offer.preferred = request.preferred.count(offer.name) != 0;
  if (request.exclusive && !vacant && !node.ranks.by_slot().empty()) offer.free_slots.clear();
  if (request.gpu_model.empty() && request.gpu_memory_bytes == 0) return;
  for (const v1::Slot& slot : node.hello.slots()) {
    if (Accepts(request, slot)) continue;
    const bool was_free = std::erase(offer.free_slots, slot.index()) != 0;
    // A node that is asked for all of its slots is asked for those with the right GPU.
    if (was_free || node.ranks.by_slot().count(slot.index()) != 0) --offer.slot_count;
  }
}

std::optional<Share> ShareOf(const Shape& shape, uint32_t slot_count, size_t free) {
  if (shape.total_ranks > 0) {
    const uint32_t per_rank = shape.devices_per_rank.value_or(1);
    const uint32_t ranks = std::min<uint64_t>(shape.total_ranks, free / per_rank);
    if (ranks == 0) return std::nullopt;
    return Share{ranks, per_rank};
  }
  if (!shape.devices_per_rank.has_value()) {
    if (free < slot_count || slot_count < shape.ranks_per_node) return std::nullopt;
    return Share{shape.ranks_per_node, slot_count / shape.ranks_per_node};
  }
  const uint64_t needed = uint64_t{*shape.devices_per_rank} * shape.ranks_per_node;
  if (free < needed) return std::nullopt;
  return Share{shape.ranks_per_node, *shape.devices_per_rank};
}

bool Suffices(const Shape& shape, uint64_t nodes, uint64_t ranks) {
  return shape.total_ranks > 0 ? ranks >= shape.total_ranks : nodes >= shape.min_nodes;
}

bool IsComplete(const Shape& shape, uint64_t nodes, uint64_t ranks) {
  return shape.total_ranks > 0 ? ranks >= shape.total_ranks : nodes >= shape.max_nodes;
}

}  // namespace muster::core
