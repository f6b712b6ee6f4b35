#include "coordinator/core/rendezvous/waits.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/text/phase_text.h"
#include "common/text/wait_text.h"
#include "common/time/proto_time.h"
#include "coordinator/core/jobs/job.h"
#include "coordinator/core/rendezvous/rendezvous.h"

namespace muster::core {
namespace {

// Missing ranks listed per wait of a job's view; the others are only counted.
constexpr size_t kRanksInView = 256;
// Missing ranks listed per notice. Fewer, because each notice goes to all nodes of the generation.
constexpr size_t kRanksInNotice = 32;
// Notices sent per job each time its timer fires; the oldest waits come first.
constexpr size_t kMaxNotices = 8;
// Longest shown phase, counter included, of those that ranks report in their progress.
constexpr size_t kMaxPhaseBytes = 64;
// A rank that reports without progress for this long is shown as such.
constexpr absl::Duration kShownStandstill = absl::Seconds(5);
// Distinct wait names per job, which are metric labels. Limited because users name barrier groups.
constexpr size_t kMaxLabelsPerJob = 16;
constexpr char kOtherBarriers[] = "barrier (others)";
// Name of all waits in a hosted c10d store: their texts contain the keys of programs.
constexpr char kStoreLabel[] = "c10d store";

constexpr absl::Duration kFirstNotice = absl::Seconds(2);
constexpr absl::Duration kNoticeInterval = absl::Seconds(5);

void AddHiddenCount(size_t hidden, v1::Wait& wait) {
  if (hidden > 0) wait.add_missing()->set_reason(absl::StrCat("and ", hidden, " more"));
}

std::string Seconds(absl::Duration d) {
  return absl::StrCat(absl::ToInt64Milliseconds(d) / 1000, ".",
                      absl::ToInt64Milliseconds(d) / 100 % 10, " s");
}

// The first time after `after` at which a notice is due for a wait that began at `since`.
SteadyTime NextNotice(SteadyTime since, SteadyTime after) {
  const SteadyTime first = since + kFirstNotice;
  if (after < first) return first;
  absl::Duration rest;
  const int64_t passed = absl::IDivDuration(after - first, kNoticeInterval, &rest);
  return first + (passed + 1) * kNoticeInterval;
}

// Keeps the `most` most suspicious ranks: those in the earliest phase, then those silent for
// longest.
void KeepMostSuspicious(const GenerationState& generation, size_t most,
                        std::vector<uint32_t>& ids) {
  if (ids.size() <= most) return;
  std::nth_element(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(most), ids.end(),
                   [&generation](uint32_t a, uint32_t b) {
                     const RankState& x = generation.ranks[a];
                     const RankState& y = generation.ranks[b];
                     return std::tie(x.phase, x.last_seen, a) < std::tie(y.phase, y.last_seen, b);
                   });
  ids.resize(most);
  std::sort(ids.begin(), ids.end());
}

// Describes the last report on a rank. A living node is no evidence that its ranks are alive.
std::string DescribeRank(const Job& job, const RankState& rank, Time now, const NodeTable& nodes,
                         const Context& context) {
  const std::string& name = job.generation->placement(rank.node_rank).node();
  std::string phase =
      rank.lost ? "lost with its node" : absl::StrCat("phase ", v1::RankPhase_Name(rank.phase));
  const std::string own = rank.progress.has_value() ? PhaseText(*rank.progress) : "";
  if (!rank.gone() && !own.empty() && own.size() <= kMaxPhaseBytes) {
    absl::StrAppend(&phase, " (", own, ")");
  }
  std::vector<std::string> parts = {std::move(phase)};
  if (rank.pid != 0) parts.push_back(absl::StrCat("pid ", rank.pid));
  const std::string silence = Seconds(now.steady - rank.last_seen);
  parts.push_back(rank.phase == v1::PLACED ? absl::StrCat("no report for ", silence)
                                           : absl::StrCat("last seen ", silence, " ago"));
  if (!own.empty() && rank.last_seen - rank.last_progress >= kShownStandstill) {
    parts.push_back(absl::StrCat("no progress for ", Seconds(now.steady - rank.last_progress)));
  }
  if (nodes.at(NodeName(name)).state == v1::SUSPECT) {
    const SteadyTime end = nodes.at(NodeName(name)).lease_start + LeaseOf(job, context.options);
    parts.push_back(absl::StrCat("its node is SUSPECT and the rank will be lost in ",
                                 Seconds(std::max(end - now.steady, absl::ZeroDuration()))));
  }
  return absl::StrJoin(parts, ", ");
}

// Adds the missing ranks `ids` to the wait: at most `most` of them, then the number of the others.
void DescribeRanks(const Job& job, std::vector<uint32_t> ids, size_t most, Time now,
                   const NodeTable& nodes, const Context& context, v1::Wait& wait) {
  const GenerationState& generation = *job.generation;
  const size_t all = ids.size();
  KeepMostSuspicious(generation, most, ids);
  for (const uint32_t id : ids) {
    const RankState& rank = generation.ranks[id];
    v1::WaitedFor& missing = *wait.add_missing();
    missing.set_rank(id);
    missing.set_node(generation.placement(rank.node_rank).node());
    missing.set_reason(DescribeRank(job, rank, now, nodes, context));
  }
  AddHiddenCount(all - ids.size(), wait);
}

v1::Wait DescribeWait(const Job& job, const RendezvousState& state, const OpenWait& open,
                      size_t most, Time now, const NodeTable& nodes, const Context& context) {
  const GenerationState& generation = *job.generation;
  v1::Wait wait;
  wait.set_what(open.what);
  *wait.mutable_since() = ToProto(now.steady - open.since);
  if (open.store.has_value()) {
    DescribeRanks(job, open.store->missing, most, now, nodes, context, wait);
    if (wait.missing().empty()) wait.add_missing()->set_reason(open.store->reason);
    return wait;
  }
  std::vector<uint32_t> ranks = open.named;
  if (ranks.empty()) {
    ranks = open.barrier.has_value() ? state.barriers.Missing(*open.barrier)
                                     : generation.RanksBefore(state.awaited);
  }
  DescribeRanks(job, std::move(ranks), most, now, nodes, context, wait);
  return wait;
}

}  // namespace

std::vector<OpenWait> OpenWaits(const Job& job, const RendezvousState& state) {
  std::vector<OpenWait> waits;
  if (!job.generation.has_value() || job.state() == v1::STOPPING) return waits;
  const GenerationState& generation = *job.generation;
  if (job.state() == v1::STARTING) {
    waits.push_back(
        {state.awaited == v1::CONNECTED ? "communicators" : "rendezvous",
         state.awaited_since,
         static_cast<uint32_t>(generation.ranks.size()) - generation.reached[state.awaited],
         std::nullopt,
         {}});
  }
  for (const BarrierTable::Open& open : state.barriers.ListOpen()) {
    waits.push_back({absl::StrCat("barrier ", open.barrier.group(), "/", open.barrier.sequence()),
                     open.since,
                     open.missing,
                     open.barrier,
                     {}});
  }
  for (const StoreWait& store : state.store_waits) {
    waits.push_back({store.what,
                     store.since,
                     static_cast<uint32_t>(store.missing.size()),
                     std::nullopt,
                     {},
                     store});
  }
  return waits;
}

void ArmWaitTimer(const Job& job, Context& context) {
  const TimerKey key{TimerKey::Kind::kWait, job.status.job_id()};
  const std::optional<SteadyTime> armed = context.timers.Get(key);
  const SteadyTime first = context.now.steady + kFirstNotice;
  if (!armed.has_value() || *armed > first) context.timers.Set(key, first);
}

v1::Wait SendNotice(const Job& job, const RendezvousState& state, const OpenWait& open,
                    bool timed_out, NodeTable& nodes, Context& context) {
  const GenerationState& generation = *job.generation;
  v1::CoordinatorMessage message;
  v1::WaitNotice& notice = *message.mutable_wait_notice();
  notice.set_job_id(job.status.job_id());
  notice.set_generation(generation.record.generation());
  *notice.mutable_wait() =
      DescribeWait(job, state, open, kRanksInNotice, context.now, nodes, context);
  notice.set_timed_out(timed_out);
  for (int node_rank = 0; node_rank < generation.record.nodes_size(); ++node_rank) {
    const v1::NodePlacement& placement = generation.placement(node_rank);
    const Node& node = nodes.at(NodeName(placement.node()));
    if (node.record.incarnation() != placement.incarnation()) continue;
    if (generation.HasLiveRanks(node_rank)) nodes.Send(node, message);
  }
  context.Log(absl::StrCat("job ", notice.job_id(), " generation ", notice.generation(), ": ",
                           WaitText(notice.wait(), timed_out)));
  return std::move(*notice.mutable_wait());
}

// ------------------------------------------------------------------------------------------------
// Rendezvous

void Rendezvous::SetStoreWaits(const Job& job, const v1::StoreWaits& waits) {
  RendezvousState& state = states_.at(job.id());
  const size_t world_size = job.generation->ranks.size();
  state.store_waits.clear();
  for (const v1::StoreWait& reported : waits.waits()) {
    StoreWait& wait = state.store_waits.emplace_back();
    wait.what = reported.what();
    wait.since = context_.now.steady - FromProto(reported.since());
    for (const uint32_t rank : reported.missing()) {
      if (rank < world_size) wait.missing.push_back(rank);
    }
    wait.reason = reported.reason();
  }
  if (!state.store_waits.empty()) ArmWaitTimer(job, context_);
}

std::vector<LiveWait> Rendezvous::ListWaits() const {
  std::vector<LiveWait> all;
  for (const JobId& id : jobs_.active()) {
    std::map<std::string, LiveWait> by_name;
    for (const OpenWait& open : OpenWaits(jobs_.at(id), states_.at(id))) {
      std::string what = open.store.has_value() ? kStoreLabel : open.what;
      if (open.barrier.has_value()) what = absl::StrCat("barrier ", open.barrier->group());
      if (by_name.count(what) == 0 && by_name.size() >= kMaxLabelsPerJob) what = kOtherBarriers;
      const LiveWait wait{id, what, open.since, open.missing};
      const auto [entry, first] = by_name.emplace(what, wait);
      if (!first && open.since < entry->second.since) entry->second = wait;
    }
    for (auto& [what, wait] : by_name) all.push_back(std::move(wait));
  }
  return all;
}

std::vector<v1::Wait> Rendezvous::Waits(const Job& job, Time now) const {
  std::vector<v1::Wait> waits;
  if (job.state() == v1::STOPPING) {
    std::vector<uint32_t> live;
    for (const RankState& rank : job.generation->ranks) {
      if (!rank.gone()) live.push_back(rank.rank);
    }
    v1::Wait& wait = waits.emplace_back();
    wait.set_what("stop");
    *wait.mutable_since() = ToProto(now.steady - job.generation->stopping_since);
    DescribeRanks(job, std::move(live), kRanksInView, now, nodes_, context_, wait);
  }
  const auto state = states_.find(job.id());
  if (state == states_.end()) return waits;
  for (const OpenWait& open : OpenWaits(job, state->second)) {
    waits.push_back(DescribeWait(job, state->second, open, kRanksInView, now, nodes_, context_));
  }
  return waits;
}

void Rendezvous::OnWaitTimer(const Job& job) {
  RendezvousState& state = states_.at(job.id());
  std::vector<OpenWait> waits = OpenWaits(job, state);
  std::sort(waits.begin(), waits.end(),
            [](const OpenWait& a, const OpenWait& b) { return a.since < b.since; });
  SteadyTime next = SteadyTime::Infinite();
  size_t sent = 0;
  for (const OpenWait& wait : waits) {
    next = std::min(next, NextNotice(wait.since, context_.now.steady));
    if (NextNotice(wait.since, state.noticed_until) > context_.now.steady) continue;
    if (sent++ < kMaxNotices) SendNotice(job, state, wait, /*timed_out=*/false, nodes_, context_);
  }
  state.noticed_until = context_.now.steady;
  if (next < SteadyTime::Infinite()) {
    context_.timers.Set({TimerKey::Kind::kWait, job.status.job_id()}, next);
  }
}

}  // namespace muster::core
