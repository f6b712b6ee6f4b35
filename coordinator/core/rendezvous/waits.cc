// Who waits for whom: as people ask, and unasked every few seconds while a wait goes on.
#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/proto_time.h"
#include "common/wait_text.h"
#include "coordinator/core/core_impl.h"

namespace muster::core {
namespace {

// Of one wait: beyond that a number says more.
constexpr size_t kShownWaits = 256;
// In what every node of the generation is sent again and again.
constexpr size_t kShownInNotice = 32;
// Of one job; whoever opens more barriers at once reads of the oldest.
constexpr size_t kNoticesAtOnce = 8;
// A rank's own word for what it does.
constexpr size_t kShownPhaseBytes = 64;
// Different names of waits of one job, as a label of metrics. Users name groups of barriers.
constexpr size_t kLabelsPerJob = 16;
constexpr char kOtherBarriers[] = "barrier (others)";

constexpr absl::Duration kFirstNotice = absl::Seconds(2);
constexpr absl::Duration kNoticeInterval = absl::Seconds(5);

void AddMore(size_t hidden, v1::Wait& wait) {
  if (hidden > 0) wait.add_missing()->set_reason(absl::StrCat("and ", hidden, " more"));
}

std::string Seconds(absl::Duration d) {
  return absl::StrCat(absl::ToInt64Milliseconds(d) / 1000, ".",
                      absl::ToInt64Milliseconds(d) / 100 % 10, " s");
}

// The first moment after `after` at which a wait since `since` is told of.
SteadyTime NextNotice(SteadyTime since, SteadyTime after) {
  const SteadyTime first = since + kFirstNotice;
  if (after < first) return first;
  absl::Duration rest;
  const int64_t passed = absl::IDivDuration(after - first, kNoticeInterval, &rest);
  return first + (passed + 1) * kNoticeInterval;
}

// Keeps the `most` suspicious ones: those that came the least far, then those silent for longest.
void KeepSuspects(const GenerationState& generation, size_t most, std::vector<uint32_t>& ids) {
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

std::string HoldersOf(const Node& node) {
  constexpr size_t kShown = 8;
  std::vector<std::string> holders;
  for (const auto& [slot, holder] : node.busy) {
    holders.push_back(absl::StrCat("job ", holder.job.value(), " rank ", holder.rank));
    if (holders.size() == kShown) break;
  }
  if (holders.empty() && !node.leftovers.empty()) holders.push_back("ranks that are ending");
  return holders.empty() ? "" : absl::StrCat(" (", absl::StrJoin(holders, ", "), ")");
}

// A slot is one of a CPU unless it is said to be something else.
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

// What keeps the node from taking its share of a job; empty when it can take it.
std::string BlockerOf(const Node& node, const Shape& shape, const std::vector<std::string>& kinds) {
  if (node.leaving && node.state != v1::LOST) return "leaving: its worker is ending";
  if (node.state != v1::READY) return v1::NodeState_Name(node.state);
  if (node.record.cordoned()) {
    return node.record.cordon_reason().empty()
               ? "cordoned"
               : absl::StrCat("cordoned: ", node.record.cordon_reason());
  }
  std::vector<std::string> offers;
  for (const std::string& kind : kinds) {
    const FreeNode offer = *node.Offer(kind);
    if (SlotsPerRank(shape, offer.slot_count, offer.free_slots.size()).has_value()) return "";
    const uint32_t all = node.SlotCount(kind);
    if (all == 0) continue;
    offers.push_back(absl::StrCat(offer.free_slots.size(), " of ", all, KindWord(kind),
                                  " slots free", HoldersOf(node), UnavailableOf(node, kind)));
  }
  if (!offers.empty()) return absl::StrJoin(offers, ", ");
  return kinds.size() == 1 ? absl::StrCat("offers no ", kinds.front(), " slots")
                           : "offers no slots";
}

// Whether it could take its share if it were idle.
bool IsLargeEnough(const Node& node, const Shape& shape, const std::vector<std::string>& kinds) {
  if (node.state == v1::LOST || node.leaving) return false;
  return std::any_of(kinds.begin(), kinds.end(), [&](const std::string& kind) {
    const uint32_t slots = node.SlotCount(kind);
    return SlotsPerRank(shape, slots, slots).has_value();
  });
}

std::string NeedText(const Shape& shape, const std::vector<std::string>& kinds, uint32_t fitting,
                     uint32_t large_enough) {
  const std::string kind = kinds.size() == 1 ? KindWord(kinds.front()) : "";
  std::string slots = absl::StrCat("all", kind, " slots free");
  if (shape.devices_per_rank.has_value()) {
    const uint32_t count = *shape.devices_per_rank * shape.ranks_per_node;
    slots = absl::StrCat(count, " free", kind, count == 1 ? " slot" : " slots");
  }
  std::string text =
      absl::StrCat("needs ", shape.min_nodes, shape.min_nodes == 1 ? " node with " : " nodes with ",
                   slots, "; ", fitting, fitting == 1 ? " has that" : " have that");
  if (large_enough < shape.min_nodes) {
    absl::StrAppend(&text, "; the cluster has ", large_enough,
                    large_enough == 1 ? " node" : " nodes",
                    " of that size: ", shape.min_nodes - large_enough, " more must join");
  }
  return text;
}

}  // namespace

// ----------------------------------------------------------------------------------------------
// the waits there are

std::vector<Core::Impl::OpenWait> Core::Impl::OpenWaits(const Job& job) const {
  std::vector<OpenWait> waits;
  if (!job.generation.has_value() || job.state() == v1::STOPPING) return waits;
  const GenerationState& generation = *job.generation;
  if (job.state() == v1::STARTING) {
    waits.push_back(
        {generation.awaited == v1::CONNECTED ? "communicators" : "rendezvous",
         generation.awaited_since,
         static_cast<uint32_t>(generation.ranks.size()) - generation.reached[generation.awaited],
         std::nullopt});
  }
  for (const BarrierTable::Open& open : generation.barriers.ListOpen()) {
    waits.push_back({absl::StrCat("barrier ", open.barrier.group(), "/", open.barrier.sequence()),
                     open.since, open.missing, open.barrier});
  }
  return waits;
}

v1::Wait Core::Impl::DescribeWait(const Job& job, const OpenWait& open, size_t most,
                                  Time now) const {
  const GenerationState& generation = *job.generation;
  v1::Wait wait;
  wait.set_what(open.what);
  *wait.mutable_since() = ToProto(now.steady - open.since);
  DescribeRanks(job,
                open.barrier.has_value() ? generation.barriers.Missing(*open.barrier)
                                         : generation.RanksBefore(generation.awaited),
                most, now, wait);
  return wait;
}

std::vector<LiveWait> Core::Impl::ListWaits() const {
  std::vector<LiveWait> all;
  for (const JobId& id : active_) {
    std::map<std::string, LiveWait> by_name;
    for (const OpenWait& open : OpenWaits(jobs_.at(id))) {
      std::string what =
          open.barrier.has_value() ? absl::StrCat("barrier ", open.barrier->group()) : open.what;
      if (by_name.count(what) == 0 && by_name.size() >= kLabelsPerJob) what = kOtherBarriers;
      const LiveWait wait{id, what, open.since, open.missing};
      const auto [entry, first] = by_name.emplace(what, wait);
      if (!first && open.since < entry->second.since) entry->second = wait;
    }
    for (auto& [what, wait] : by_name) all.push_back(std::move(wait));
  }
  return all;
}

std::vector<v1::Wait> Core::Impl::Waits(const Job& job, Time now) const {
  std::vector<v1::Wait> waits;
  if (job.state() == v1::QUEUED) {
    v1::Wait& wait = waits.emplace_back();
    wait.set_what("resources");
    *wait.mutable_since() = ToProto(now.steady - job.state_since);
    const std::vector<v1::WaitedFor> blockers = Blockers(job);
    const size_t shown = std::min(blockers.size(), kShownWaits);
    for (size_t i = 0; i < shown; ++i) *wait.add_missing() = blockers[i];
    AddMore(blockers.size() - shown, wait);
  }
  if (job.state() == v1::STOPPING) {
    std::vector<uint32_t> live;
    for (const RankState& rank : job.generation->ranks) {
      if (!rank.gone()) live.push_back(rank.rank);
    }
    v1::Wait& wait = waits.emplace_back();
    wait.set_what("stop");
    *wait.mutable_since() = ToProto(now.steady - job.generation->stopping_since);
    DescribeRanks(job, std::move(live), kShownWaits, now, wait);
  }
  for (const OpenWait& open : OpenWaits(job)) {
    waits.push_back(DescribeWait(job, open, kShownWaits, now));
  }
  return waits;
}

// What a rank said of itself last; that its node is alive says nothing of it.
std::string Core::Impl::DescribeRank(const Job& job, const RankState& rank, Time now) const {
  const std::string& name = job.generation->placement(rank.node_rank).node();
  std::string phase =
      rank.lost ? "lost with its node" : absl::StrCat("phase ", v1::RankPhase_Name(rank.phase));
  const bool tells = rank.progress.has_value() && !rank.progress->phase().empty() &&
                     rank.progress->phase().size() <= kShownPhaseBytes;
  if (!rank.gone() && tells) {
    absl::StrAppend(&phase, " (", rank.progress->phase(), ")");
  }
  std::vector<std::string> parts = {std::move(phase)};
  if (rank.pid != 0) parts.push_back(absl::StrCat("pid ", rank.pid));
  const std::string silence = Seconds(now.steady - rank.last_seen);
  parts.push_back(rank.phase == v1::PLACED ? absl::StrCat("no word of it for ", silence)
                                           : absl::StrCat("last seen ", silence, " ago"));
  if (nodes_.at(NodeName(name)).state == v1::SUSPECT) {
    const std::optional<SteadyTime> lease = timers_.Get({TimerKey::Kind::kLease, name});
    if (lease.has_value()) {
      parts.push_back(absl::StrCat("its node is SUSPECT, and given up in ",
                                   Seconds(std::max(*lease - now.steady, absl::ZeroDuration()))));
    }
  }
  return absl::StrJoin(parts, ", ");
}

void Core::Impl::DescribeRanks(const Job& job, std::vector<uint32_t> ids, size_t most, Time now,
                               v1::Wait& wait) const {
  const GenerationState& generation = *job.generation;
  const size_t all = ids.size();
  KeepSuspects(generation, most, ids);
  for (const uint32_t id : ids) {
    const RankState& rank = generation.ranks[id];
    v1::WaitedFor& missing = *wait.add_missing();
    missing.set_rank(id);
    missing.set_node(generation.placement(rank.node_rank).node());
    missing.set_reason(DescribeRank(job, rank, now));
  }
  AddMore(all - ids.size(), wait);
}

// ----------------------------------------------------------------------------------------------
// telling those who wait

void Core::Impl::WaitBegins(const Job& job) {
  const TimerKey key{TimerKey::Kind::kWait, job.job().job_id()};
  const std::optional<SteadyTime> armed = timers_.Get(key);
  const SteadyTime first = now_.steady + kFirstNotice;
  if (!armed.has_value() || *armed > first) timers_.Set(key, first);
}

void Core::Impl::OnWaitTimer(Job& job) {
  GenerationState& generation = *job.generation;
  std::vector<OpenWait> waits = OpenWaits(job);
  std::sort(waits.begin(), waits.end(),
            [](const OpenWait& a, const OpenWait& b) { return a.since < b.since; });
  SteadyTime next = SteadyTime::Infinite();
  size_t sent = 0;
  for (const OpenWait& wait : waits) {
    next = std::min(next, NextNotice(wait.since, now_.steady));
    if (NextNotice(wait.since, generation.noticed_until) > now_.steady) continue;
    if (sent++ < kNoticesAtOnce) SendNotice(job, wait, /*timed_out=*/false);
  }
  generation.noticed_until = now_.steady;
  if (next < SteadyTime::Infinite()) {
    timers_.Set({TimerKey::Kind::kWait, job.job().job_id()}, next);
  }
}

v1::Wait Core::Impl::SendNotice(const Job& job, const OpenWait& open, bool timed_out) {
  const GenerationState& generation = *job.generation;
  v1::CoordinatorMessage message;
  v1::WaitNotice& notice = *message.mutable_wait_notice();
  notice.set_job_id(job.job().job_id());
  notice.set_generation(generation.record.generation());
  *notice.mutable_wait() = DescribeWait(job, open, kShownInNotice, now_);
  notice.set_timed_out(timed_out);
  for (int node_rank = 0; node_rank < generation.record.nodes_size(); ++node_rank) {
    const v1::NodePlacement& placement = generation.placement(node_rank);
    const Node& node = nodes_.at(NodeName(placement.node()));
    if (node.record.incarnation() != placement.incarnation()) continue;
    if (generation.HasLiveRanks(node_rank)) SendTo(node, message);
  }
  effects_.logs.push_back(absl::StrCat("job ", notice.job_id(), " generation ", notice.generation(),
                                       ": ", WaitText(notice.wait(), timed_out)));
  return std::move(*notice.mutable_wait());
}

// ----------------------------------------------------------------------------------------------
// the queue

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
  uint32_t fitting = 0;
  uint32_t large_enough = 0;
  std::vector<v1::WaitedFor> nodes;
  for (const auto& [name, node] : nodes_) {
    if (IsLargeEnough(node, shape, kinds)) ++large_enough;
    std::string reason = BlockerOf(node, shape, kinds);
    if (reason.empty()) {
      ++fitting;
      continue;
    }
    v1::WaitedFor& blocker = nodes.emplace_back();
    blocker.set_node(name.value());
    blocker.set_reason(std::move(reason));
  }
  blockers.emplace_back().set_reason(NeedText(shape, kinds, fitting, large_enough));
  if (position == 1 && fitting >= shape.min_nodes) {
    const std::string sharing = SharingText(resources, Offers::kNow);
    if (!sharing.empty()) blockers.emplace_back().set_reason(sharing);
  }
  std::sort(nodes.begin(), nodes.end(), [](const v1::WaitedFor& a, const v1::WaitedFor& b) {
    return NaturalLess(a.node(), b.node());
  });
  std::move(nodes.begin(), nodes.end(), std::back_inserter(blockers));
  return blockers;
}

}  // namespace muster::core
