#include "coordinator/core/lifecycle/growth.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "coordinator/core/reasons.h"
#include "coordinator/core/scheduler/placement/placement.h"

namespace muster::core {
namespace {

// Several nodes that return one after another cause only one interruption.
constexpr absl::Duration kGrowthDelay = absl::Seconds(10);
constexpr absl::Duration kMostInterval = absl::Minutes(10);

// How many more nodes the job could use.
uint32_t LackingNodes(const Job& job) {
  const auto used = static_cast<uint32_t>(job.generation->record.nodes_size());
  const v1::Resources& resources = job.spec().resources();
  if (resources.ranks() > 0) return 0;  // a fixed number of ranks
  return resources.nodes().max() - std::min(used, resources.nodes().max());
}

// Returns the request for the nodes that the job lacks.
v1::Resources FurtherNodes(const Job& job) {
  v1::Resources resources = job.spec().resources();
  resources.mutable_nodes()->set_min(1);
  resources.mutable_nodes()->set_max(LackingNodes(job));
  // A job does not mix kinds of slot.
  resources.set_device(job.generation->record.gpu_slots() > 0 ? "gpu" : "cpu");
  for (const v1::NodePlacement& placement : job.generation->record.nodes()) {
    resources.add_exclude_nodes(placement.node());
  }
  return resources;
}

}  // namespace

void Growth::OnDecision() {
  const bool nodes_changed = std::exchange(nodes_version_, nodes_.version()) != nodes_.version();
  if (nodes_changed || scheduler_.HasCapacityChanged()) Arm();
}

void Growth::Arm() {
  const TimerKey key{TimerKey::Kind::kGrowth, ""};
  if (growable_.empty()) return;
  const SteadyTime soon = context_.now.steady + kGrowthDelay;
  context_.timers.Set(key, std::min(soon, context_.timers.Get(key).value_or(soon)));
}

void Growth::Watch(Job& job) {
  const auto nodes = static_cast<uint32_t>(job.generation->record.nodes_size());
  // An interruption that gained nothing must not recur soon.
  const bool in_vain = nodes <= std::exchange(job.nodes_before_growth, 0);
  job.growth_interval = in_vain ? std::min(kMostInterval, 2 * job.growth_interval) : kGrowthDelay;
  job.grow_after = context_.now.steady + job.growth_interval;
  if (LackingNodes(job) == 0) return;
  growable_.insert(job.id());
  Arm();
}

bool Growth::SomeJobGrows() const {
  return std::any_of(jobs_.active().begin(), jobs_.active().end(), [this](const JobId& id) {
    const Job& job = jobs_.at(id);
    return job.state() == v1::STOPPING && job.ending.reason == reasons::kGrowing;
  });
}

std::optional<Growth::Candidate> Growth::OnTimer() {
  // The timer is set again when they have ended or started, because capacity changes then.
  if (scheduler_.SomeJobWaits() || SomeJobGrows()) return std::nullopt;
  const auto has_free_slot = [](const auto& entry) {
    const std::set<std::string> kinds = entry.second.Kinds();
    return std::any_of(kinds.begin(), kinds.end(), [&entry](const std::string& kind) {
      const std::optional<FreeNode> offer = entry.second.Offer(kind);
      return offer.has_value() && !offer->free_slots.empty();
    });
  };
  if (std::none_of(nodes_.all().begin(), nodes_.all().end(), has_free_slot)) return std::nullopt;
  SteadyTime retry = SteadyTime::Infinite();
  for (const JobId& id : growable_) {
    Job& job = jobs_.at(id);
    if (job.state() != v1::RUNNING) continue;
    if (job.grow_after > context_.now.steady) {
      retry = std::min(retry, job.grow_after);
    } else if (std::optional<std::string> message = TryGrow(job)) {
      return Candidate{id, *std::move(message)};
    }
  }
  if (retry < SteadyTime::Infinite()) context_.timers.Set({TimerKey::Kind::kGrowth, ""}, retry);
  return std::nullopt;
}

std::optional<std::string> Growth::TryGrow(Job& job) const {
  const v1::Resources further = FurtherNodes(job);
  std::vector<std::string> names;
  uint32_t slots = 0;
  for (const v1::NodePlacement& placement :
       Place(further, nodes_.all(), Offers::kNow, further.share_device())) {
    const Node& node = nodes_.at(NodeName(placement.node()));
    const uint32_t of_node = TakenSlots(placement, node, further.exclusive());
    if (scheduler_.ExceedsLimit(job.status.owner(), slots + of_node)) break;
    slots += of_node;
    names.push_back(placement.node());
  }
  if (names.empty()) return std::nullopt;
  job.nodes_before_growth = static_cast<uint32_t>(job.generation->record.nodes_size());
  return absl::StrCat(
      "growing from ", job.nodes_before_growth, " to ", job.nodes_before_growth + names.size(),
      " nodes: ", absl::StrJoin(names, ", "), names.size() == 1 ? " is free" : " are free");
}

}  // namespace muster::core
