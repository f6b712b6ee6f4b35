#include "coordinator/core/scheduler/explain.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/proto_time.h"
#include "coordinator/core/scheduler/estimate.h"
#include "coordinator/core/scheduler/placement.h"
#include "coordinator/core/scheduler/rank_map.h"

namespace muster::core {
namespace {

std::string HoldersOf(const Node& node) {
  constexpr size_t kShown = 8;
  std::vector<std::string> holders;
  for (const auto& [slot, holder] : node.busy) {
    holders.push_back(absl::StrCat("job ", holder.job.value(), " rank ", holder.rank));
    if (holders.size() == kShown) break;
  }
  if (holders.empty() && !node.leftovers.empty()) holders.push_back("ranks that are stopping");
  return holders.empty() ? "" : absl::StrCat(" (", absl::StrJoin(holders, ", "), ")");
}

// Returns the word for a kind of slot: empty for CPU slots, the default.
std::string KindWord(const std::string& kind) {
  return kind == "cpu" ? "" : absl::StrCat(" ", kind);
}

std::string UnavailableOf(const Node& node, const std::string& kind) {
  constexpr int kShown = 4;
  std::string text;
  int shown = 0;
  for (const v1::Slot& slot : node.hello.slots()) {
    if (slot.unavailable().empty() || node.KindOf(slot.index()) != kind) continue;
    if (shown++ == kShown) return absl::StrCat(text, "; and more");
    absl::StrAppend(&text, "; GPU ", slot.device().index(), ": ", slot.unavailable());
  }
  return text;
}

// "; slot 1: unkillable rank 3 of train-x7k2, pid 4411".
std::string UnkillableOn(const Node& node) {
  std::string text;
  for (const auto& [slot, holder] : node.busy) {
    const UnkillableRank* const held = node.FindUnkillable(slot);
    if (held != nullptr) absl::StrAppend(&text, "; slot ", slot, ": ", Describe(*held));
  }
  return text;
}

// Returns the reason why the node cannot take its share of a job; empty when it can.
std::string BlockerOf(const Node& node, const Shape& shape, const std::vector<std::string>& kinds,
                      absl::Time now) {
  if (node.leaving && node.state != v1::LOST) return "leaving: its worker is shutting down";
  if (node.state != v1::READY) return v1::NodeState_Name(node.state);
  if (!node.conflict.empty()) return absl::StrCat("in conflict: ", node.conflict);
  if (node.record.cordoned()) {
    return node.record.cordon_reason().empty()
               ? "cordoned"
               : absl::StrCat("cordoned: ", node.record.cordon_reason());
  }
  if (node.IsCoolingDown()) {
    const absl::Duration left =
        std::max(FromProto(node.record.cool_down_until()) - now, absl::ZeroDuration());
    return absl::StrCat("not used for ", absl::FormatDuration(absl::Ceil(left, absl::Seconds(1))),
                        ": ", node.record.failed_launches(), " launches in a row failed on it");
  }
  std::vector<std::string> offers;
  for (const std::string& kind : kinds) {
    const FreeNode offer = *node.Offer(kind);
    if (SlotsPerRank(shape, offer.slot_count, offer.free_slots.size()).has_value()) return "";
    const uint32_t all = node.SlotCount(kind);
    if (all == 0) continue;
    offers.push_back(absl::StrCat(offer.free_slots.size(), " of ", all, KindWord(kind),
                                  " slots free", HoldersOf(node), UnavailableOf(node, kind),
                                  UnkillableOn(node)));
  }
  if (!offers.empty()) return absl::StrJoin(offers, ", ");
  return kinds.size() == 1 ? absl::StrCat("offers no ", kinds.front(), " slots")
                           : "offers no slots";
}

// The number of nodes that could take their share of a job if no other job ran. A job does not mix
// kinds of slots, so this counts nodes of the kind that most of them offer.
uint32_t CountLargeEnough(const NodeMap& nodes, const Shape& shape,
                          const std::vector<std::string>& kinds) {
  uint32_t most = 0;
  for (const std::string& kind : kinds) {
    const auto count = std::count_if(nodes.begin(), nodes.end(), [&](const auto& entry) {
      const std::optional<FreeNode> offer = entry.second.VacantOffer(kind);
      return offer.has_value() &&
             SlotsPerRank(shape, offer->slot_count, offer->free_slots.size()).has_value();
    });
    most = std::max(most, static_cast<uint32_t>(count));
  }
  return most;
}

// "needs 3 nodes with 1 free slot".
std::string NeedText(const Shape& shape, const std::vector<std::string>& kinds) {
  const std::string kind = kinds.size() == 1 ? KindWord(kinds.front()) : "";
  std::string slots = absl::StrCat("all", kind, " slots free");
  if (shape.devices_per_rank.has_value()) {
    const uint32_t count = *shape.devices_per_rank * shape.ranks_per_node;
    slots = absl::StrCat(count, " free", kind, count == 1 ? " slot" : " slots");
  }
  return absl::StrCat("needs ", shape.min_nodes,
                      shape.min_nodes == 1 ? " node with " : " nodes with ", slots);
}

// "the cluster has 2 usable nodes of that size, 1 too few".
std::string SupplyText(const Shape& shape, uint32_t large_enough) {
  std::string text = absl::StrCat("the cluster has ", large_enough, " usable ",
                                  large_enough == 1 ? "node" : "nodes", " of that size");
  if (large_enough < shape.min_nodes) {
    absl::StrAppend(&text, ", ", shape.min_nodes - large_enough, " too few");
  }
  return text;
}

// Returns the slots of the nodes in the order of placement, and sorts `nodes` into that order.
Forecast PoolsOf(std::vector<const Node*>& nodes) {
  std::vector<std::pair<FreeNode, const Node*>> ordered;
  for (const Node* node : nodes) ordered.emplace_back(*node->Offer(""), node);
  std::sort(ordered.begin(), ordered.end(),
            [](const auto& a, const auto& b) { return IsPlacedBefore(a.first, b.first); });
  Forecast forecast;
  for (size_t i = 0; i < ordered.size(); ++i) {
    nodes[i] = ordered[i].second;
    for (const std::string& kind : nodes[i]->Kinds()) {
      const FreeNode offer = *nodes[i]->Offer(kind);
      std::vector<Forecast::Pool>& pools = forecast.pools[kind];
      pools.resize(nodes.size());
      pools[i] = {offer.slot_count, static_cast<uint32_t>(offer.free_slots.size())};
    }
  }
  return forecast;
}

// Adds the slots that the job has on the node.
void AddReleases(const Node& node, size_t place, const JobId& job, absl::Duration in,
                 Forecast& forecast) {
  std::map<std::string, uint32_t> held;
  for (const auto& [slot, holder] : node.busy) {
    if (holder.job == job) ++held[node.KindOf(slot)];
  }
  for (const auto& [kind, slots] : held) forecast.releases.push_back({in, kind, place, slots});
}

// Returns the longest time until the job's generation ends; nullopt when that is unknown.
std::optional<absl::Duration> TimeLeft(const Job& job, Time now) {
  const GenerationState& generation = *job.generation;
  if (job.state() == v1::STOPPING) {
    if (!IsTerminal(job.ending.outcome) || job.ending.outcome == v1::FAILED) {
      return std::nullopt;  // it will be restarted
    }
    return job.ending.grace_period - (now.steady - generation.stopping_since);
  }
  absl::Duration left = absl::InfiniteDuration();
  const RankState& rank = generation.ranks.front();
  if (rank.progress.has_value() && rank.progress->has_time_left()) {
    left = FromProto(rank.progress->time_left()) - (now.steady - rank.last_seen);
  }
  if (const std::optional<absl::Time> end = job.TimeLimitEnd()) {
    left = std::min(left, *end - now.wall);
  }
  if (left == absl::InfiniteDuration()) return std::nullopt;
  return left;
}

}  // namespace

std::string UnplaceableReason(const v1::Resources& resources, const NodeMap& nodes) {
  if (FitsVacant(resources, nodes)) return "";
  const Shape shape = ShapeOf(resources);
  const std::vector<std::string> kinds = SlotKinds(resources);
  return absl::StrCat(NeedText(shape, kinds), "; ",
                      SupplyText(shape, CountLargeEnough(nodes, shape, kinds)));
}

std::vector<v1::WaitedFor> Blockers(const Job& job, const JobQueue& queue, const NodeMap& nodes,
                                    absl::Time now) {
  std::vector<v1::WaitedFor> blockers;
  const uint32_t position = queue.PositionOf(job.id());
  const bool unplaceable = !queue.UnplaceableReason(job.id()).empty();
  const JobId* const head = queue.head();
  const bool is_head = head != nullptr && *head == job.id();
  if (position > 0 && !is_head && !unplaceable && head != nullptr) {
    blockers.emplace_back().set_reason(absl::StrCat("waiting behind job ", head->value(),
                                                    ", at position ", position, " in the queue"));
  }
  const v1::Resources& resources = job.spec().resources();
  const Shape shape = ShapeOf(resources);
  const std::vector<std::string> kinds = SlotKinds(resources);
  uint32_t fitting = 0;
  std::vector<v1::WaitedFor> unfit;
  for (const auto& [name, node] : nodes) {
    std::string reason = BlockerOf(node, shape, kinds, now);
    if (reason.empty()) {
      ++fitting;
      continue;
    }
    v1::WaitedFor& blocker = unfit.emplace_back();
    blocker.set_node(name.value());
    blocker.set_reason(std::move(reason));
  }
  std::string need = absl::StrCat(NeedText(shape, kinds), "; ", fitting, " available");
  const uint32_t large_enough = CountLargeEnough(nodes, shape, kinds);
  if (large_enough < shape.min_nodes) {
    absl::StrAppend(&need, "; ", SupplyText(shape, large_enough));
  }
  blockers.emplace_back().set_reason(std::move(need));
  if (is_head && fitting >= shape.min_nodes) {
    const std::string sharing = SharingText(resources, nodes, Offers::kNow);
    if (!sharing.empty()) blockers.emplace_back().set_reason(sharing);
  }
  std::sort(unfit.begin(), unfit.end(), [](const v1::WaitedFor& a, const v1::WaitedFor& b) {
    return NaturalLess(a.node(), b.node());
  });
  std::move(unfit.begin(), unfit.end(), std::back_inserter(blockers));
  return blockers;
}

std::optional<absl::Duration> TimeToStart(const Job& job, const JobTable& jobs,
                                          const JobQueue& queue, const NodeMap& node_map,
                                          Time now) {
  const uint32_t position = queue.PositionOf(job.id());
  if (position == 0 || position > kForecastJobs) return std::nullopt;
  if (!queue.UnplaceableReason(job.id()).empty()) return std::nullopt;
  std::vector<const Node*> nodes;
  for (const auto& [name, node] : node_map) {
    if (node.Offer("").has_value()) nodes.push_back(&node);
  }
  Forecast forecast = PoolsOf(nodes);
  std::map<NodeName, size_t> places;
  for (size_t i = 0; i < nodes.size(); ++i) places.emplace(nodes[i]->name(), i);
  for (const JobId& id : jobs.active()) {
    const Job& other = jobs.at(id);
    const std::optional<absl::Duration> left = TimeLeft(other, now);
    if (!left.has_value()) continue;
    for (const v1::NodePlacement& placement : other.generation->record.nodes()) {
      const auto place = places.find(NodeName(placement.node()));
      if (place != places.end())
        AddReleases(*nodes[place->second], place->second, id, *left, forecast);
    }
  }
  std::vector<QueuedJob> ahead;
  for (const JobId& id : queue.First(position)) {
    if (!queue.UnplaceableReason(id).empty()) continue;  // passed over
    const v1::JobSpec& spec = jobs.at(id).spec();
    ahead.push_back({ShapeOf(spec.resources()), SlotKinds(spec.resources())});
    if (spec.has_time_limit()) {
      ahead.back().length = FromProto(spec.time_limit()) - jobs.at(id).run_time;
    }
  }
  return EstimateStart(std::move(forecast), ahead);
}

}  // namespace muster::core
