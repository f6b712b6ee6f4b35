// What the core shows of itself. Nothing in here changes anything.
#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/proto_time.h"
#include "coordinator/core/core_impl.h"

namespace muster::core {
namespace {

// Of one wait: beyond that a number says more.
constexpr size_t kShownWaits = 256;

void AddMore(size_t hidden, v1::Wait& wait) {
  if (hidden > 0) wait.add_missing()->set_reason(absl::StrCat("and ", hidden, " more"));
}

std::string Seconds(absl::Duration d) {
  return absl::StrCat(absl::ToInt64Milliseconds(d) / 1000, ".",
                      absl::ToInt64Milliseconds(d) / 100 % 10, " s");
}

}  // namespace

absl::StatusOr<JobId> Core::Impl::ResolveJob(absl::string_view name) const {
  const std::string prefix(name);
  if (prefix.empty()) return absl::NotFoundError("no job is named");
  const auto first = jobs_.lower_bound(JobId(prefix));
  if (first == jobs_.end() || !absl::StartsWith(first->first.value(), prefix)) {
    return absl::NotFoundError(absl::StrCat("no job ", prefix));
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
  return view;
}

// ----------------------------------------------------------------------------------------------
// who waits for whom

std::vector<v1::Wait> Core::Impl::Waits(const Job& job, Time now) const {
  std::vector<v1::Wait> waits;
  const auto add = [&waits, &now](std::string what, SteadyTime since) -> v1::Wait& {
    v1::Wait& wait = waits.emplace_back();
    wait.set_what(std::move(what));
    *wait.mutable_since() = ToProto(now.steady - since);
    return wait;
  };
  if (job.state() == v1::QUEUED) {
    v1::Wait& wait = add("resources", job.state_since);
    const std::vector<v1::WaitedFor> blockers = Blockers(job);
    const size_t shown = std::min(blockers.size(), kShownWaits);
    for (size_t i = 0; i < shown; ++i) *wait.add_missing() = blockers[i];
    AddMore(blockers.size() - shown, wait);
  }
  if (!job.generation.has_value()) return waits;
  const GenerationState& generation = *job.generation;
  if (job.state() == v1::STARTING) {
    const bool connecting = generation.awaited == v1::CONNECTED;
    DescribeRanks(job, generation.RanksBefore(generation.awaited), now,
                  add(connecting ? "communicators" : "rendezvous", generation.awaited_since));
  }
  if (job.state() == v1::STOPPING) {
    std::vector<uint32_t> live;
    for (const RankState& rank : generation.ranks) {
      if (!rank.gone()) live.push_back(rank.rank);
    }
    DescribeRanks(job, live, now, add("stop", generation.stopping_since));
  }
  for (const BarrierTable::Open& open : generation.barriers.ListOpen()) {
    DescribeRanks(job, open.missing, now,
                  add(absl::StrCat("barrier ", open.barrier.group(), "/", open.barrier.sequence()),
                      open.since));
  }
  return waits;
}

void Core::Impl::DescribeRanks(const Job& job, const std::vector<uint32_t>& ids, Time now,
                               v1::Wait& wait) const {
  const GenerationState& generation = *job.generation;
  const size_t shown = std::min(ids.size(), kShownWaits);
  for (size_t i = 0; i < shown; ++i) {
    const RankState& rank = generation.ranks[ids[i]];
    const std::string& name = generation.placement(rank.node_rank).node();
    const Node& node = nodes_.at(NodeName(name));
    v1::WaitedFor& missing = *wait.add_missing();
    missing.set_rank(rank.rank);
    missing.set_node(name);
    std::vector<std::string> parts = {
        rank.lost ? "lost with its node" : absl::StrCat("phase ", v1::RankPhase_Name(rank.phase))};
    if (rank.pid != 0) parts.push_back(absl::StrCat("pid ", rank.pid));
    parts.push_back(absl::StrCat("last seen ", Seconds(now.steady - rank.last_seen), " ago"));
    if (node.state == v1::SUSPECT) {
      const std::optional<SteadyTime> lease = timers_.Get({TimerKey::Kind::kLease, name});
      if (lease.has_value()) {
        parts.push_back(absl::StrCat("its node is SUSPECT, and given up in ",
                                     Seconds(std::max(*lease - now.steady, absl::ZeroDuration()))));
      }
    }
    missing.set_reason(absl::StrJoin(parts, ", "));
  }
  AddMore(ids.size() - shown, wait);
}

std::vector<v1::WaitedFor> Core::Impl::Blockers(const Job& job) const {
  std::vector<v1::WaitedFor> blockers;
  const uint32_t position = queue_.PositionOf(job.id());
  if (position > 1) {
    blockers.emplace_back().set_reason(absl::StrCat("waits behind job ", queue_.head().value(),
                                                    "; place ", position, " in the queue"));
  }
  const v1::Resources& resources = job.job().spec().resources();
  const Shape shape = ShapeOf(resources);
  const std::vector<std::string> kinds = SlotKinds(resources);
  const std::string slots =
      shape.devices_per_rank.has_value()
          ? absl::StrCat(*shape.devices_per_rank * shape.ranks_per_node, " free slot",
                         *shape.devices_per_rank * shape.ranks_per_node == 1 ? "" : "s")
          : std::string("all slots free");
  uint32_t fitting = 0;
  std::vector<v1::WaitedFor> nodes;
  for (const auto& [name, node] : nodes_) {
    std::string reason;
    if (node.state != v1::READY) {
      reason = v1::NodeState_Name(node.state);
    } else if (node.record.cordoned()) {
      reason = absl::StrCat("cordoned: ", node.record.cordon_reason());
    } else {
      bool fits = false;
      for (const std::string& kind : kinds) {
        const FreeNode offer = *node.Offer(kind);
        fits |= SlotsPerRank(shape, offer).has_value();
        if (offer.slot_count == 0 && kinds.size() > 1) continue;
        std::vector<std::string> holders;
        for (const auto& [slot, holder] : node.busy) {
          holders.push_back(absl::StrCat("job ", holder.job.value(), " rank ", holder.rank));
          if (holders.size() == 8) break;
        }
        if (holders.empty() && !node.leftovers.empty()) holders.push_back("ranks that are ending");
        absl::StrAppend(&reason, reason.empty() ? "" : ", ", offer.free_slots.size(), " of ",
                        offer.slot_count, " slots free");
        if (!holders.empty()) absl::StrAppend(&reason, " (", absl::StrJoin(holders, ", "), ")");
      }
      if (reason.empty()) reason = "offers no slots";
      if (fits) {
        ++fitting;
        continue;
      }
    }
    v1::WaitedFor& blocker = nodes.emplace_back();
    blocker.set_node(name.value());
    blocker.set_reason(std::move(reason));
  }
  v1::WaitedFor& summary = blockers.emplace_back();
  summary.set_reason(absl::StrCat("needs ", shape.min_nodes,
                                  shape.min_nodes == 1 ? " node with " : " nodes with ", slots,
                                  "; ", fitting, fitting == 1 ? " has that" : " have that"));
  std::sort(nodes.begin(), nodes.end(), [](const v1::WaitedFor& a, const v1::WaitedFor& b) {
    return NaturalLess(a.node(), b.node());
  });
  std::move(nodes.begin(), nodes.end(), std::back_inserter(blockers));
  return blockers;
}

}  // namespace muster::core
