#include "coordinator/core/scheduler/explain.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/time/proto_time.h"
#include "coordinator/core/scheduler/estimate.h"
#include "coordinator/core/scheduler/placement/natural_order.h"
#include "coordinator/core/scheduler/placement/node_choice.h"
#include "coordinator/core/scheduler/placement/placement.h"
#include "coordinator/core/scheduler/placement/request.h"
#include "coordinator/core/scheduler/queue_blockers.h"
#include "coordinator/core/steady_clock.h"

namespace muster::core {
namespace {

std::string HoldersOf(const Node& node) {
  constexpr size_t kShown = 8;
  std::vector<std::string> holders;
  for (const auto& [slot, holder] : node.ranks.by_slot()) {
    holders.push_back(absl::StrCat("job ", holder.job.value(), " rank ", holder.rank));
    if (holders.size() == kShown) break;
  }
  if (holders.empty() && node.ranks.HasLeftovers()) holders.push_back("ranks that are stopping");
  return holders.empty() ? "" : absl::StrCat(" (", absl::StrJoin(holders, ", "), ")");
}

// Returns the word for a kind of slot: empty for CPU slots, the default.
std::string KindWord(const std::string& kind) {
  return kind == "cpu" ? "" : absl::StrCat(" ", kind);
}

// "gpu slots", "gpu slots of the model h200", "slots".
std::string SlotWords(const Request& request) {
  if (request.kinds.size() > 1) return "slots";
  return absl::StrCat(
      request.kinds.front(), " slots",
      request.gpu_model.empty() && request.gpu_memory_bytes == 0 ? "" : " with the requested GPU");
}

// The number of slots of the kind, usable or not, that the request accepts.
uint32_t CountAccepted(const Request& request, const Node& node, const std::string& kind) {
  uint32_t count = 0;
  for (const v1::Slot& slot : node.hello.slots()) {
    if (node.KindOf(slot.index()) == kind && Accepts(request, slot)) ++count;
  }
  return count;
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
  for (const auto& [slot, holder] : node.ranks.by_slot()) {
    const UnkillableRank* const held = node.ranks.FindUnkillable(slot);
    if (held != nullptr) absl::StrAppend(&text, "; slot ", slot, ": ", Describe(*held));
  }
  return text;
}

// Why a node cannot take its share of a job, and what would change that.
struct NodeBlocker {
  std::string reason;
  std::string remedy = {};
};

// Returns why the node cannot take any ranks now; nullopt when it can.
std::optional<NodeBlocker> StateBlocker(const Node& node, SteadyTime now) {
  const std::string& name = node.record.name();
  if (node.leaving && node.state != v1::LOST) {
    return NodeBlocker{"leaving: its worker is shutting down", "start its worker again"};
  }
  if (node.state != v1::READY) {
    return NodeBlocker{v1::NodeState_Name(node.state), absl::StrCat("start the worker of ", name)};
  }
  if (!node.conflict.empty()) {
    return NodeBlocker{absl::StrCat("in conflict: ", node.conflict), "muster admin recover"};
  }
  if (node.record.cordoned_by_health()) {
    return NodeBlocker{absl::StrCat("cordoned: ", node.record.cordon_reason()),
                       absl::StrCat("repair ", name, "; it returns when it passes a self-test: ",
                                    "muster node test ", name)};
  }
  if (node.record.cordoned()) {
    return NodeBlocker{node.record.cordon_reason().empty()
                           ? "cordoned"
                           : absl::StrCat("cordoned: ", node.record.cordon_reason()),
                       absl::StrCat("muster node uncordon ", name)};
  }
  if (node.IsCoolingDown()) {
    const absl::Duration left =
        std::max(FromStored(node.record.cool_down_until()) - now, absl::ZeroDuration());
    return NodeBlocker{
        absl::StrCat("not used for ", absl::FormatDuration(absl::Ceil(left, absl::Seconds(1))),
                     ": ", node.record.failed_launches(), " launches in a row failed on it"),
        absl::StrCat("muster node uncordon ", name)};
  }
  return std::nullopt;
}

// Returns why the node cannot take its share of a job; nullopt when it can.
std::optional<NodeBlocker> BlockerOf(const Node& node, const Request& request, SteadyTime now) {
  std::string mismatch = WhyUnsuitable(request, node);
  if (!mismatch.empty()) return NodeBlocker{std::move(mismatch)};
  if (std::optional<NodeBlocker> blocker = StateBlocker(node, now)) return blocker;
  std::vector<std::string> offers;
  for (const std::string& kind : request.kinds) {
    FreeNode offer = *node.Offer(kind);
    Restrict(request, node, /*vacant=*/false, offer);
    if (ShareOf(request.shape, offer.slot_count, offer.free_slots.size()).has_value()) {
      return std::nullopt;
    }
    const uint32_t all = CountAccepted(request, node, kind);
    if (all == 0) continue;
    offers.push_back(absl::StrCat(offer.free_slots.size(), " of ", all, KindWord(kind),
                                  " slots free", HoldersOf(node), UnavailableOf(node, kind),
                                  UnkillableOn(node)));
  }
  if (!offers.empty()) {
    std::string exclusive;
    if (request.exclusive && !node.ranks.by_slot().empty())
      exclusive = "; the job needs the node for itself";
    if (node.ranks.exclusive_job().has_value()) {
      exclusive =
          absl::StrCat("; job ", node.ranks.exclusive_job()->value(), " has the node for itself");
    }
    return NodeBlocker{absl::StrCat(absl::StrJoin(offers, ", "), exclusive)};
  }
  return NodeBlocker{absl::StrCat("offers no ", SlotWords(request))};
}

// The contributions of nodes to a job.
struct Capacity {
  uint32_t nodes = 0;
  uint64_t ranks = 0;
};

// The nodes that could take their share of a job if no other job ran. A job does not mix kinds of
// slots, so this counts nodes of the kind that most of them offer.
Capacity CountLargeEnough(const NodeMap& nodes, const Request& request) {
  Capacity most;
  for (const std::string& kind : request.kinds) {
    Capacity supply;
    for (const auto& [name, node] : nodes) {
      if (!WhyUnsuitable(request, node).empty()) continue;
      std::optional<FreeNode> offer = node.Offer(kind, Offers::kVacant);
      if (!offer.has_value()) continue;
      Restrict(request, node, /*vacant=*/true, *offer);
      const std::optional<Share> share =
          ShareOf(request.shape, offer->slot_count, offer->free_slots.size());
      if (!share.has_value()) continue;
      ++supply.nodes;
      supply.ranks += share->ranks;
    }
    if (supply.ranks > most.ranks) most = supply;
  }
  return most;
}

// " and labels gpu=h100 rack=a and GPU model h100": what a node must have in addition to slots.
std::string ConstraintText(const Request& request) {
  std::string text;
  if (!request.select.empty()) {
    absl::StrAppend(&text, " and labels ",
                    absl::StrJoin(request.select, " ", absl::PairFormatter("=")));
  }
  if (!request.gpu_model.empty()) absl::StrAppend(&text, " and GPU model ", request.gpu_model);
  if (request.gpu_memory_bytes > 0) {
    absl::StrAppend(&text, " and GPU memory of ", request.gpu_memory_bytes >> 30, " GiB");
  }
  if (request.exclusive) absl::StrAppend(&text, " and no other job");
  return text;
}

// "needs 3 nodes with 1 free slot".
std::string NeedText(const Request& request) {
  const Shape& shape = request.shape;
  const std::string kind = request.kinds.size() == 1 ? KindWord(request.kinds.front()) : "";
  if (shape.total_ranks > 0) {
    return absl::StrCat("needs ", shape.total_ranks * shape.devices_per_rank.value_or(1), " free",
                        kind, " slots on nodes of any size", ConstraintText(request));
  }
  std::string slots = absl::StrCat("all", kind, " slots free");
  if (shape.devices_per_rank.has_value()) {
    const uint32_t count = *shape.devices_per_rank * shape.ranks_per_node;
    slots = absl::StrCat(count, " free", kind, count == 1 ? " slot" : " slots");
  }
  return absl::StrCat("needs ", shape.min_nodes,
                      shape.min_nodes == 1 ? " node with " : " nodes with ", slots,
                      ConstraintText(request));
}

// "the cluster has 2 usable nodes of that size, 1 too few".
std::string CapacityText(const Shape& shape, const Capacity& supply) {
  if (shape.total_ranks > 0) {
    return absl::StrCat("the cluster has room for ", supply.ranks, " of ", shape.total_ranks,
                        " ranks");
  }
  std::string text = absl::StrCat("the cluster has ", supply.nodes, " usable ",
                                  supply.nodes == 1 ? "node" : "nodes", " of that size");
  if (supply.nodes < shape.min_nodes) {
    absl::StrAppend(&text, ", ", shape.min_nodes - supply.nodes, " too few");
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
  for (const auto& [slot, holder] : node.ranks.by_slot()) {
    if (holder.job == job) ++held[node.KindOf(slot)];
  }
  for (const auto& [kind, slots] : held) forecast.releases.push_back({in, kind, place, slots});
}

// Returns the longest time until the job's generation ends; nullopt when that is unknown.
std::optional<absl::Duration> TimeLeft(const Job& job, const Time& now) {
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
  if (const std::optional<SteadyTime> end = job.TimeLimitEnd()) {
    left = std::min(left, *end - now.steady);
  }
  if (left == absl::InfiniteDuration()) return std::nullopt;
  return left;
}

}  // namespace

std::string UnplaceableReason(const v1::Resources& resources, const NodeMap& nodes) {
  if (FitsVacant(resources, nodes)) return "";
  const Request request = RequestOf(resources);
  return absl::StrCat(NeedText(request), "; ",
                      CapacityText(request.shape, CountLargeEnough(nodes, request)));
}

std::vector<v1::WaitedFor> Blockers(const Job& job, const Scheduler& scheduler,
                                    const NodeMap& nodes, const Time& now) {
  std::vector<v1::WaitedFor> blockers = QueueBlockers(job.id(), scheduler, now);
  std::vector<v1::WaitedFor> of_nodes = NodeBlockers(job.spec().resources(), scheduler, nodes, now);
  std::move(of_nodes.begin(), of_nodes.end(), std::back_inserter(blockers));
  return blockers;
}

std::vector<v1::WaitedFor> NodeBlockers(const v1::Resources& resources, const Scheduler& scheduler,
                                        const NodeMap& nodes, const Time& now) {
  std::vector<v1::WaitedFor> blockers;
  const Request request = RequestOf(resources);
  uint32_t fitting = 0;
  std::vector<v1::WaitedFor> unfit;
  for (const auto& [name, node] : nodes) {
    std::optional<NodeBlocker> found = BlockerOf(node, request, now.steady);
    if (!found.has_value()) {
      ++fitting;
      continue;
    }
    v1::WaitedFor& blocker = unfit.emplace_back();
    blocker.set_node(name.value());
    blocker.set_reason(std::move(found->reason));
    blocker.set_remedy(found->remedy.empty() ? RemedyOf(node, scheduler.cluster(), now)
                                             : std::move(found->remedy));
  }
  std::string need = absl::StrCat(NeedText(request), "; ", fitting, " available");
  const Capacity supply = CountLargeEnough(nodes, request);
  if (!Suffices(request.shape, supply.nodes, supply.ranks)) {
    absl::StrAppend(&need, "; ", CapacityText(request.shape, supply));
  }
  blockers.emplace_back().set_reason(std::move(need));
  if (fitting >= request.shape.min_nodes) {
    const std::string sharing = SharingText(resources, nodes, Offers::kNow);
    if (!sharing.empty()) blockers.emplace_back().set_reason(sharing);
  }
  std::sort(unfit.begin(), unfit.end(), [](const v1::WaitedFor& a, const v1::WaitedFor& b) {
    return NaturalLess(a.node(), b.node());
  });
  std::move(unfit.begin(), unfit.end(), std::back_inserter(blockers));
  return blockers;
}

std::string LimitsWarning(const v1::Resources& resources, const NodeMap& nodes) {
  std::vector<absl::string_view> limits;
  if (resources.memory() != 0) limits.push_back("resources.memory");
  if (resources.pids() != 0) limits.push_back("resources.pids");
  if (limits.empty()) return "";
  const Request request = RequestOf(resources);
  size_t usable = 0;
  size_t unlimited = 0;
  const Node* example = nullptr;
  for (const auto& [name, node] : nodes) {
    if (node.state == v1::LOST || !WhyUnsuitable(request, node).empty()) continue;
    ++usable;
    if (node.hello.limits_unavailable().empty()) continue;
    ++unlimited;
    if (example == nullptr || NaturalLess(name.value(), example->record.name())) example = &node;
  }
  if (example == nullptr) return "";
  return absl::StrCat(absl::StrJoin(limits, " and "), limits.size() == 1 ? " is" : " are",
                      " not enforced on ", unlimited, " of ", usable,
                      " nodes that the job could use, e.g. ", example->record.name(), ": ",
                      example->hello.limits_unavailable());
}

namespace {

// The slots of the cluster, and when running jobs free theirs.
Forecast ForecastOf(const JobTable& jobs, const NodeMap& node_map, const Time& now) {
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
  return forecast;
}

}  // namespace

namespace {

using Jobs = std::vector<const Job*>;

// The estimates of these jobs, if they start one after another.
std::vector<StartEstimate> EstimatesInOrder(const Jobs& order, const JobTable& jobs,
                                            const Scheduler& scheduler, const NodeMap& nodes,
                                            const Time& now) {
  std::vector<StartEstimate> estimates(order.size());
  std::vector<QueuedJob> queue;
  std::vector<size_t> of_queue;  // the index of each estimate
  for (size_t i = 0; i < order.size(); ++i) {
    if (!scheduler.queue().UnplaceableReason(order[i]->id()).empty()) {  // passed over
      estimates[i].basis = "unknown: the cluster is too small for it";
      continue;
    }
    const v1::JobSpec& spec = order[i]->spec();
    queue.push_back({ShapeOf(spec.resources()), SlotKinds(spec.resources())});
    if (spec.has_time_limit()) {
      queue.back().length = FromProto(spec.time_limit()) - order[i]->run_time;
    }
    of_queue.push_back(i);
  }
  const auto starts = EstimateStarts(ForecastOf(jobs, nodes, now), queue);
  for (size_t i = 0; i < starts.size(); ++i) {
    StartEstimate& estimate = estimates[of_queue[i]];
    estimate.in = starts[i];
    const Reservation* const kept = scheduler.plan().FindReservation(order[of_queue[i]]->id());
    if (estimate.in.has_value()) {
      estimate.basis = absl::StrCat(
          "time limits and progress of running jobs",
          i == 0 ? "" : absl::StrCat(" and of the ", i, i == 1 ? " job" : " jobs", " ahead"));
    } else if (kept != nullptr && kept->from < SteadyTime::Infinite()) {
      estimate.in = kept->from - now.steady;
      estimate.basis = "the latest ends of the jobs on the nodes that are kept for it";
    } else {
      estimate.basis = "unknown: jobs that run or are ahead have no time limit";
    }
  }
  return estimates;
}

Jobs FirstJobs(const std::vector<JobId>& ids, const JobTable& jobs) {
  Jobs first;
  for (const JobId& id : ids) first.push_back(&jobs.at(id));
  return first;
}

}  // namespace

std::vector<StartEstimate> EstimatesOf(const std::vector<JobId>& first, const JobTable& jobs,
                                       const Scheduler& scheduler, const NodeMap& nodes,
                                       const Time& now) {
  return EstimatesInOrder(FirstJobs(first, jobs), jobs, scheduler, nodes, now);
}

StartEstimate EstimateAt(uint32_t position, const Job& job, const JobTable& jobs,
                         const Scheduler& scheduler, const NodeMap& nodes, const Time& now) {
  if (position == 0) return {};
  if (position > kForecastJobs) {
    return {std::nullopt,
            absl::StrCat("unknown: it is at position ", position, ", and only the first ",
                         kForecastJobs, " jobs are simulated")};
  }
  Jobs order = FirstJobs(scheduler.First(position - 1), jobs);
  order.push_back(&job);
  return EstimatesInOrder(order, jobs, scheduler, nodes, now).back();
}

StartEstimate EstimateOf(const Job& job, const JobTable& jobs, const Scheduler& scheduler,
                         const NodeMap& nodes, const Time& now) {
  return EstimateAt(scheduler.PositionOf(job.id()), job, jobs, scheduler, nodes, now);
}

}  // namespace muster::core
