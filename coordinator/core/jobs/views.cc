// What the core shows of itself. Nothing in here changes anything.
#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/proto_time.h"
#include "coordinator/core/core_impl.h"
#include "coordinator/core/scheduler/estimate.h"

namespace muster::core {
namespace {

// What the nodes have, in the order of placement, which `nodes` is brought into.
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

// The slots that the job has on the node.
void AddReleases(const Node& node, size_t place, const JobId& job, absl::Duration in,
                 Forecast& forecast) {
  std::map<std::string, uint32_t> held;
  for (const auto& [slot, holder] : node.busy) {
    if (holder.job == job) ++held[node.KindOf(slot)];
  }
  for (const auto& [kind, slots] : held) forecast.releases.push_back({in, kind, place, slots});
}

}  // namespace

absl::StatusOr<JobId> Core::Impl::ResolveJob(absl::string_view name) const {
  const std::string prefix(name);
  if (prefix.empty()) return absl::NotFoundError("no job is named");
  const auto first = jobs_.lower_bound(JobId(prefix));
  if (first == jobs_.end() || !absl::StartsWith(first->first.value(), prefix)) {
    return NoJob(prefix);
  }
  const auto second = std::next(first);
  const bool exact = first->first.value() == prefix;
  if (!exact && second != jobs_.end() && absl::StartsWith(second->first.value(), prefix)) {
    return absl::InvalidArgumentError(absl::StrCat("job ", prefix,
                                                   " is ambiguous: ", first->first.value(), " and ",
                                                   second->first.value(), " begin like that"));
  }
  return first->first;
}

absl::StatusOr<v1::Job> Core::Impl::GetJob(const JobId& id, bool detailed, Time now) const {
  const auto entry = jobs_.find(id);
  if (entry == jobs_.end()) return absl::NotFoundError(absl::StrCat("no job ", id.value()));
  return View(entry->second, detailed, now);
}

std::vector<v1::Job> Core::Impl::ListJobs(const v1::ListJobsRequest& request, Time now) const {
  std::vector<const Job*> chosen;
  for (const auto& [id, job] : jobs_) {
    if (request.state() != v1::JOB_STATE_UNSPECIFIED) {
      if (job.state() != request.state()) continue;
    } else if (IsTerminal(job.state()) && !request.include_finished()) {
      continue;
    }
    chosen.push_back(&job);
  }
  std::sort(chosen.begin(), chosen.end(), [](const Job* a, const Job* b) {
    return a->record.queue_sequence() > b->record.queue_sequence();
  });
  if (request.limit() != 0 && chosen.size() > request.limit()) chosen.resize(request.limit());
  std::vector<v1::Job> jobs;
  for (const Job* job : chosen) jobs.push_back(View(*job, /*detailed=*/false, now));
  return jobs;
}

absl::StatusOr<std::vector<v1::JobEvent>> Core::Impl::ListEvents(const JobId& id,
                                                                 uint64_t after) const {
  const auto entry = jobs_.find(id);
  if (entry == jobs_.end()) return absl::NotFoundError(absl::StrCat("no job ", id.value()));
  std::vector<v1::JobEvent> events;
  for (const v1::JobEvent& event : entry->second.events) {
    if (event.sequence() > after) events.push_back(event);
  }
  return events;
}

std::vector<v1::Node> Core::Impl::ListNodes(Time now) const {
  std::vector<v1::Node> nodes;
  for (const auto& [name, node] : nodes_) nodes.push_back(node.View(now));
  std::sort(nodes.begin(), nodes.end(),
            [](const v1::Node& a, const v1::Node& b) { return NaturalLess(a.name(), b.name()); });
  return nodes;
}

absl::StatusOr<v1::Node> Core::Impl::GetNode(const NodeName& name, Time now) const {
  const auto entry = nodes_.find(name);
  if (entry == nodes_.end()) return absl::NotFoundError(absl::StrCat("no node ", name.value()));
  return entry->second.View(now);
}

absl::StatusOr<Core::RankLocation> Core::Impl::FindRank(const JobId& id, Generation generation,
                                                        Rank rank) const {
  const auto entry = jobs_.find(id);
  if (entry == jobs_.end()) return absl::NotFoundError(absl::StrCat("no job ", id.value()));
  const Job& job = entry->second;
  const Generation number =
      generation == Generation(0) ? Generation(job.job().generation()) : generation;
  const bool lives =
      job.generation.has_value() && Generation(job.generation->record.generation()) == number;
  const auto past = job.past.find(number);
  if (!lives && past == job.past.end()) {
    return absl::NotFoundError(
        absl::StrCat("job ", id.value(), " has no generation ", number.value(), " (yet)"));
  }
  const v1::GenerationRecord& record = lives ? job.generation->record : past->second;
  for (const v1::NodePlacement& placement : record.nodes()) {
    const uint32_t first = placement.ranks(0).rank();
    if (rank.value() < first || rank.value() >= first + placement.ranks_size()) continue;
    const auto node = nodes_.find(NodeName(placement.node()));
    if (node == nodes_.end() || !node->second.session.has_value()) {
      return absl::UnavailableError(
          absl::StrCat("node ", placement.node(), ", which ran rank ", rank.value(), ", is away"));
    }
    const v1::RankRecord& of_rank = placement.ranks(rank.value() - first);
    return RankLocation{*node->second.session, node->first, number,
                        record.over() || of_rank.exited() || of_rank.lost()};
  }
  return absl::NotFoundError(absl::StrCat("generation ", number.value(), " of job ", id.value(),
                                          " has ", record.world_size(), " ranks"));
}

v1::Job Core::Impl::View(const Job& job, bool detailed, Time now) const {
  v1::Job view = job.job();
  if (view.state() != v1::SUCCEEDED) view.clear_summary();
  view.set_queue_position(queue_.PositionOf(job.id()));
  if (!detailed) {
    view.clear_past_failures();
    return view;
  }
  const auto past = job.past.find(Generation(view.generation()));
  const v1::GenerationRecord* record = nullptr;
  if (job.generation.has_value()) record = &job.generation->record;
  if (record == nullptr && past != job.past.end()) record = &past->second;
  for (int node_rank = 0; record != nullptr && node_rank < record->nodes_size(); ++node_rank) {
    for (const v1::RankRecord& of_rank : record->nodes(node_rank).ranks()) {
      v1::RankStatus& status = *view.add_ranks();
      status.set_rank(of_rank.rank());
      status.set_local_rank(of_rank.local_rank());
      status.set_node_rank(node_rank);
      status.set_node(record->nodes(node_rank).node());
      *status.mutable_slots() = of_rank.slots();
      status.set_phase(v1::EXITED);
      if (of_rank.exited()) *status.mutable_exit() = of_rank.exit();
      if (!job.generation.has_value()) continue;
      const RankState& state = job.generation->ranks[of_rank.rank()];
      status.set_phase(state.phase);
      status.set_pid(state.pid);
      if (state.progress.has_value()) *status.mutable_progress() = *state.progress;
      *status.mutable_last_seen() = ToProto(now.steady - state.last_seen);
    }
  }
  for (v1::Wait& wait : Waits(job, now)) *view.add_waits() = std::move(wait);
  if (const std::optional<absl::Duration> start = TimeToStart(job, now)) {
    *view.mutable_estimated_start_time() = ToProto(now.wall + *start);
  }
  return view;
}

std::optional<absl::Duration> Core::Impl::TimeLeft(const Job& job, Time now) const {
  const GenerationState& generation = *job.generation;
  if (job.state() == v1::STOPPING) {
    if (!IsTerminal(job.record.outcome()) || job.record.outcome() == v1::FAILED) {
      return std::nullopt;  // it comes back
    }
    return FromProto(job.record.stop_grace_period()) - (now.steady - generation.stopping_since);
  }
  absl::Duration left = absl::InfiniteDuration();
  const RankState& rank = generation.ranks.front();
  if (rank.progress.has_value() && rank.progress->has_time_left()) {
    left = FromProto(rank.progress->time_left()) - (now.steady - rank.last_seen);
  }
  if (job.job().spec().has_time_limit()) {
    left = std::min(left, FromProto(job.job().start_time()) +
                              FromProto(job.job().spec().time_limit()) - now.wall);
  }
  if (left == absl::InfiniteDuration()) return std::nullopt;
  return left;
}

std::optional<absl::Duration> Core::Impl::TimeToStart(const Job& job, Time now) const {
  const uint32_t position = queue_.PositionOf(job.id());
  if (position == 0 || position > kForecastJobs) return std::nullopt;
  std::vector<const Node*> nodes;
  for (const auto& [name, node] : nodes_) {
    if (node.Offer("").has_value()) nodes.push_back(&node);
  }
  Forecast forecast = PoolsOf(nodes);
  std::map<NodeName, size_t> places;
  for (size_t i = 0; i < nodes.size(); ++i) places.emplace(nodes[i]->name(), i);
  for (const JobId& id : active_) {
    const Job& other = jobs_.at(id);
    const std::optional<absl::Duration> left = TimeLeft(other, now);
    if (!left.has_value()) continue;
    for (const v1::NodePlacement& placement : other.generation->record.nodes()) {
      const auto place = places.find(NodeName(placement.node()));
      if (place != places.end())
        AddReleases(*nodes[place->second], place->second, id, *left, forecast);
    }
  }
  std::vector<QueuedJob> queue;
  for (const JobId& id : queue_.InOrder()) {
    const v1::JobSpec& spec = jobs_.at(id).job().spec();
    queue.push_back({ShapeOf(spec.resources()), SlotKinds(spec.resources())});
    if (spec.has_time_limit()) queue.back().length = FromProto(spec.time_limit());
    if (id == job.id()) break;
  }
  return EstimateStart(std::move(forecast), queue);
}

}  // namespace muster::core
