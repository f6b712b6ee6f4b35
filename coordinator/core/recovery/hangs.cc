#include "coordinator/core/recovery/hangs.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/limits.h"
#include "common/time/proto_time.h"
#include "coordinator/core/jobs/job_time.h"
#include "coordinator/core/reasons.h"

namespace muster::core {
namespace {

// How long the inspections of all nodes may take: the limit of a shim's inspection.
constexpr absl::Duration kInspectionTime = absl::Seconds(4);
// Total size of the stacks in a reply, far below gRPC's message limit.
constexpr size_t kAllStackBytes = 1 << 20;

// Time without a completed step after which the ranks of a train job are inspected.
constexpr absl::Duration kShortestStall = absl::Milliseconds(2500);
constexpr double kStallSteps = 10;
// Stalls of one generation that are announced per hour: a slow file server may cause many.
constexpr uint32_t kStalls = 16;
constexpr absl::Duration kStallsPeriod = absl::Hours(1);

// Returns whether each rank that has not exited trains and has completed a step.
bool AllTrain(const GenerationState& generation) {
  return std::all_of(generation.ranks.begin(), generation.ranks.end(), [](const RankState& rank) {
    return rank.gone() || (rank.progress.has_value() && rank.progress->phase() == "training" &&
                           rank.progress->has_first_step_time());
  });
}

absl::Duration TimeoutOf(const Job& job) { return FromProto(job.spec().hang_timeout()); }

bool Restarts(const Job& job) { return job.spec().on_hang() == "restart"; }

// Returns whether the newest event about a hang reports one of this generation.
bool IsAnnounced(const Job& job) {
  for (auto event = job.events.rbegin(); event != job.events.rend(); ++event) {
    if (event->type() == events::kHangEnded) return false;
    if (event->type() == events::kJobHung) return event->generation() == job.status.generation();
  }
  return false;
}

std::string Seconds(absl::Duration duration) {
  return absl::FormatDuration(absl::Trunc(duration, absl::Seconds(1)));
}

}  // namespace

Hangs::Watch& Hangs::WatchOf(const Job& job) {
  const auto [entry, added] = watches_.try_emplace(job.id());
  if (added) entry->second.announced = IsAnnounced(job);
  return entry->second;
}

void Hangs::NoteReport(Job& job, const RankState& rank, const v1::RankReport& report) {
  if (!report.has_silence() || rank.gone() || job.state() == v1::STOPPING) return;
  if (TimeoutOf(job) == absl::ZeroDuration()) return;
  Watch& watch = WatchOf(job);
  const absl::Duration silence = FromProto(report.silence());
  if (silence > absl::ZeroDuration()) {
    watch.silent_since[rank.rank] = context_.now.steady - silence;
  } else {
    watch.silent_since.erase(rank.rank);
    OnActive(job, watch);
  }
  Arm(job);
}

void Hangs::NoteAdvance(Job& job, bool first) {
  if (!job.is_train() || job.state() != v1::RUNNING) return;
  if (TimeoutOf(job) > absl::ZeroDuration()) return;
  Watch& watch = WatchOf(job);
  if (!first && (watch.phase != Watch::Phase::kWatched || watch.announced)) OnActive(job, watch);
  const absl::Duration step = absl::Seconds(job.status.progress().step_seconds());
  context_.timers.Set({TimerKey::Kind::kStall, job.status.job_id()},
                      context_.now.steady + std::max(kShortestStall, kStallSteps * step));
}

void Hangs::OnStall(Job& job) {
  const auto entry = watches_.find(job.id());
  if (entry == watches_.end() || job.state() != v1::RUNNING) return;
  Watch& watch = entry->second;
  if (watch.phase != Watch::Phase::kWatched) return;
  if (job.generation->gone > 0 || !AllTrain(*job.generation)) return;
  const SteadyTime now = context_.now.steady;
  if (watch.stalls == 0 || now - watch.stalls_since >= kStallsPeriod) {
    watch.stalls = 0;
    watch.stalls_since = now;
  }
  if (watch.stalls == kStalls) return;
  watch.stalled = true;
  ++watch.stalls;
  for (const RankState& rank : job.generation->ranks) {
    watch.silent_since[rank.rank] = rank.last_progress;
  }
  Inspect(job, watch);
}

void Hangs::NoteExit(Job& job, const RankState& rank) {
  const auto entry = watches_.find(job.id());
  if (entry == watches_.end()) return;
  entry->second.silent_since.erase(rank.rank);
  entry->second.awaited.erase(rank.rank);
  Arm(job);
}

void Hangs::Arm(Job& job) {
  const auto entry = watches_.find(job.id());
  if (entry == watches_.end() || entry->second.phase != Watch::Phase::kWatched) return;
  const TimerKey key{TimerKey::Kind::kHang, job.status.job_id()};
  const GenerationState& generation = *job.generation;
  const std::map<uint32_t, SteadyTime>& silent = entry->second.silent_since;
  const bool all_silent =
      !silent.empty() && silent.size() == generation.ranks.size() - generation.gone;
  if (job.state() != v1::RUNNING || !all_silent) return context_.timers.Cancel(key);
  const SteadyTime since = std::max_element(silent.begin(), silent.end(), [](auto& a, auto& b) {
                             return a.second < b.second;
                           })->second;
  context_.timers.Set(key, since + TimeoutOf(job));
}

void Hangs::OnActive(Job& job, Watch& watch) {
  watch.phase = Watch::Phase::kWatched;
  watch.inspections.clear();
  watch.awaited.clear();
  if (std::exchange(watch.stalled, false)) watch.silent_since.clear();
  if (!std::exchange(watch.announced, false)) return;
  job.status.clear_hang();
  jobs_.AddEvent(job, events::kHangEnded, "a rank had output or progress again");
  jobs_.MarkChanged(job);
}

void Hangs::OnTimer(Job& job) {
  const auto entry = watches_.find(job.id());
  if (entry == watches_.end() || job.state() != v1::RUNNING) return;
  Watch& watch = entry->second;
  if (watch.silent_since.empty()) return;
  if (watch.phase == Watch::Phase::kWatched) {
    Inspect(job, watch);
  } else if (watch.phase == Watch::Phase::kInspecting) {
    Conclude(job, watch);
  }
}

void Hangs::Inspect(Job& job, Watch& watch) {
  watch.phase = Watch::Phase::kInspecting;
  const GenerationState& generation = *job.generation;
  for (const auto& [rank, since] : watch.silent_since) watch.awaited.insert(rank);
  for (const v1::NodePlacement& placement : generation.record.nodes()) {
    const Node* const node = nodes_.Find(NodeName(placement.node()));
    if (node != nullptr) nodes_.SendInspect(*node, job.id(), generation.number());
  }
  context_.timers.Set({TimerKey::Kind::kHang, job.status.job_id()},
                      context_.now.steady + kInspectionTime);
}

void Hangs::NoteInspection(const Node& node, const v1::InspectionReport& report) {
  Job* const job = jobs_.FindLiving(JobId(report.job_id()), report.generation(), node.name());
  if (job == nullptr) return;
  const auto entry = watches_.find(job->id());
  if (entry == watches_.end() || entry->second.phase != Watch::Phase::kInspecting) return;
  Watch& watch = entry->second;
  const GenerationState& generation = *job->generation;
  const auto [first, end] = generation.RanksOf(*generation.NodeRank(node.name()));
  for (const v1::RankInspection& rank : report.ranks()) {
    if (rank.rank() < first || rank.rank() >= end || watch.awaited.erase(rank.rank()) == 0)
      continue;
    watch.inspections[rank.rank()] = rank;
  }
  if (watch.awaited.empty()) {
    context_.timers.Set({TimerKey::Kind::kHang, job->status.job_id()}, context_.now.steady);
  }
}

v1::Hang Hangs::MakeHang(const Job& job, const Watch& watch) const {
  const GenerationState& generation = *job.generation;
  v1::Hang hang;
  hang.set_generation(generation.number().value());
  *hang.mutable_time() = ToProto(context_.now.wall);
  std::vector<SilentRank> ranks;
  SteadyTime since = watch.silent_since.begin()->second;
  for (const auto& [number, silent_since] : watch.silent_since) {
    since = std::max(since, silent_since);
    SilentRank& rank = ranks.emplace_back();
    rank.rank = number;
    rank.node = generation.placement(generation.ranks[number].node_rank).node();
    const auto inspection = watch.inspections.find(number);
    if (inspection != watch.inspections.end()) rank.inspection = inspection->second;
  }
  *hang.mutable_silence() = ToProto(context_.now.steady - since);
  Suspicion suspicion = FindSuspect(ranks);
  if (suspicion.ranks.size() == 1) {
    hang.set_suspect_rank(suspicion.ranks[0]);
    const RankState& suspect = generation.ranks[suspicion.ranks[0]];
    hang.set_node(generation.placement(suspect.node_rank).node());
  }
  hang.set_message(std::move(suspicion.message));
  return hang;
}

std::string Hangs::Describe(const Watch& watch, const v1::Hang& hang) const {
  return absl::StrCat(watch.stalled ? "no rank has completed a step for "
                                    : "no rank had output, progress or file input and output for ",
                      Seconds(FromProto(hang.silence())), ": ", hang.message());
}

void Hangs::Conclude(Job& job, Watch& watch) {
  watch.phase = Watch::Phase::kHung;
  v1::Hang& hang = *job.status.mutable_hang();
  hang = MakeHang(job, watch);
  if (!watch.stalled) {
    job.time_account.FindHang(context_.now.steady - FromProto(hang.silence()), context_.now);
    UpdateTimeAccount(job, jobs_, context_);
  }
  jobs_.MarkChanged(job);
  const std::string message = Describe(watch, hang);
  if (!std::exchange(watch.announced, true)) {
    jobs_.AddEvent(job, events::kJobHung, message);
    context_.stats.Count("muster_job_hangs_total");
  }
  // A stalled rank may still go on before failure_timeout.
  if (watch.stalled || !Restarts(job)) return;
  v1::FirstFailure failure;
  failure.set_reason(reasons::kRankHung);
  failure.set_message(message);
  if (hang.has_suspect_rank()) {
    failure.set_rank(hang.suspect_rank());
    failure.set_node(hang.node());
    *failure.mutable_slots() =
        job.generation->RecordOf(job.generation->ranks[hang.suspect_rank()]).slots();
  }
  failures_.Add(job, std::move(failure), /*consequence=*/false);
}

void Hangs::End(Job& job) {
  for (const TimerKey::Kind kind : {TimerKey::Kind::kHang, TimerKey::Kind::kStall}) {
    context_.timers.Cancel({kind, job.status.job_id()});
  }
  job.status.clear_hang();
  watches_.erase(job.id());
}

std::vector<v1::RankInspection> Hangs::Inspections(const JobId& job) const {
  std::vector<v1::RankInspection> inspections;
  const auto entry = watches_.find(job);
  if (entry == watches_.end() || entry->second.phase != Watch::Phase::kHung) return inspections;
  size_t stack_bytes = 0;
  for (const auto& [rank, inspection] : entry->second.inspections) {
    inspections.push_back(inspection);
    stack_bytes += inspection.stack().size();
    if (stack_bytes > kAllStackBytes) inspections.back().clear_stack();
  }
  return inspections;
}

}  // namespace muster::core
