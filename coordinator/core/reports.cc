#include "coordinator/core/reports.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/limits.h"
#include "common/proto_time.h"
#include "common/utf8.h"
#include "coordinator/core/jobs/first_failure.h"
#include "coordinator/core/jobs/job_record.h"
#include "coordinator/core/reasons.h"
#include "coordinator/core/recovery/restart_policy.h"

namespace muster::core {
namespace {

constexpr size_t kFailureMessageBytes = 4096;
// The limit for a message once the generation's records have used up their space for text.
constexpr size_t kShortMessageBytes = 256;
// Events of a generation about losses of one kind.
constexpr uint32_t kLossEvents = 8;

// Bounds the size of a rank's exit record; `room` is the space left for text, in bytes. Ranks that
// did not fail keep no stderr tail.
v1::ExitInfo Bounded(v1::ExitInfo exit, size_t room) {
  std::string& tail = *exit.mutable_stderr_tail();
  KeepLast(limits::kStderrTailBytes, tail);
  if (!IsFailure(exit) || exit.stopped_by_worker()) tail.clear();
  const auto shorten = [&exit](size_t bytes) {
    if (exit.has_failure()) KeepFirst(bytes, *exit.mutable_failure()->mutable_message());
  };
  shorten(kFailureMessageBytes);
  if (ExitTextBytes(exit) > room) {
    tail.clear();
    shorten(kShortMessageBytes);
  }
  return exit;
}

// Returns whether the rank was abandoned when its generation was stopped.
bool IsUnkillable(const v1::GenerationRecord* record, const Node& node, uint32_t rank) {
  if (record == nullptr) return false;
  const v1::RankRecord* const found = FindRank(*record, node.name(), rank);
  return found != nullptr && found->unkillable();
}

// Whether the rank has worked since its previous report; reports are also repeated unchanged.
bool HasAdvanced(const std::optional<v1::Progress>& before, const v1::Progress& now) {
  return !before.has_value() || before->phase() != now.phase() ||
         before->phase_progress() != now.phase_progress() || before->step() != now.step();
}

}  // namespace

void Reports::OnReport(const Node& node, const v1::GenerationReport& report, bool inventory) {
  const JobId id(report.job_id());
  const Generation number(report.generation());
  Job* const job = jobs_.FindLiving(id, report.generation(), node.name());
  std::vector<const v1::RankReport*> strays;
  if (job == nullptr) {
    for (const v1::RankReport& rank : report.ranks()) strays.push_back(&rank);
    OnStrayRanks(node, id, number, strays, inventory);
    return;
  }
  const GenerationState& generation = *job->generation;
  const uint32_t node_rank = *generation.NodeRank(node.name());
  const auto [first, end] = generation.RanksOf(node_rank);
  bool exited = false;
  for (const v1::RankReport& rank : report.ranks()) {
    if (rank.rank() < first || rank.rank() >= end) {
      context_.stats.OnQuarantined("rank");
      jobs_.Warn(*job, rank.rank(),
                 absl::StrCat("reported by node ", node.record.name(),
                              ", which does not run it; dropped"));
      continue;
    }
    if (generation.ranks[rank.rank()].lost) {
      strays.push_back(&rank);
    } else {
      const bool ran = generation.ranks[rank.rank()].phase != v1::EXITED;
      ApplyReport(*job, rank, inventory);
      exited |= ran && generation.ranks[rank.rank()].phase == v1::EXITED;
    }
  }
  if (report.has_store_waits() && node_rank == 0) {
    rendezvous_.SetStoreWaits(*job, report.store_waits());
  }
  for (const v1::BarrierId& passed : report.passed_barriers()) {
    rendezvous_.MarkPassed(*job, passed);
  }
  if (exited) rendezvous_.RecordPassed(*job, node_rank);
  jobs_.UpdateTimeAccount(*job);
  life_cycle_.LoseAccusedNodes(*job);
  life_cycle_.Advance(*job);
  rendezvous_.AbortHopelessBarriers(*job);
  if (!strays.empty()) OnStrayRanks(node, id, number, strays, inventory);
}

void Reports::ApplyReport(Job& job, const v1::RankReport& report, bool inventory) {
  GenerationState& generation = *job.generation;
  RankState& rank = generation.ranks[report.rank()];
  for (const std::string& warning : report.warnings()) jobs_.Warn(job, rank.rank, warning);
  if (report.lost_output().bytes() > 0) {
    RecordLostOutput(job, rank, report.lost_output(),
                     report.phase() == v1::EXITED && rank.phase != v1::EXITED);
  }
  if (report.has_summary() && rank.rank == 0 && job.is_train() && !job.status.has_summary()) {
    RecordSummary(job, report.summary());
  }
  if (report.has_checkpoint() && rank.rank == 0) checkpoints_.Record(job, report.checkpoint());
  if (report.has_progress()) {
    const bool first = !rank.progress.has_value();
    const bool advanced = HasAdvanced(rank.progress, report.progress());
    if (advanced) rank.last_progress = context_.now.steady;
    generation.SetProgress(rank, report.progress());
    if (advanced && !rank.gone()) hangs_.NoteAdvance(job, first);
    stragglers_.NoteWindows(job, rank, report.progress().step_windows());
    rank.progress->clear_step_windows();
    RecordLossAnomalies(job, rank, report.progress());
    if (rank.rank == 0) {
      *job.status.mutable_progress() = *rank.progress;
      RecordSkippedSteps(job, report.progress());
      jobs_.histories().AddProgress(job);
    }
    ReachStep(job, report.progress().step());
    jobs_.MarkChanged(job);
  }
  // An inventory repeats what the worker received from the rank some time ago.
  if (!inventory || report.phase() > rank.phase) rank.last_seen = context_.now.steady;
  if (report.pid() != 0) rank.pid = report.pid();
  if (report.memory_bytes() != 0) rank.memory_bytes = report.memory_bytes();
  const bool started =
      report.pid() != 0 || (report.phase() >= v1::STARTED && report.phase() < v1::EXITED);
  if (started && !std::exchange(rank.started, true)) NoteStarted(job, rank);
  if (report.has_join()) rendezvous_.RecordJoin(job, rank.rank, report.join());
  if (rank.phase == v1::EXITED) return;
  hangs_.NoteReport(job, rank, report);
  if (report.has_failure() && report.phase() != v1::EXITED && !rank.failure.has_value()) {
    rank.failure = report.failure();
    ReachStep(job, report.failure().step());
    failures_.NoteReport(job, rank);
    jobs_.MarkChanged(job);
  }
  if (report.unkillable() && report.phase() != v1::EXITED) {
    life_cycle_.OnUnkillable(job, rank);
    return;
  }
  if (report.phase() <= rank.phase || !v1::RankPhase_IsValid(report.phase())) return;
  jobs_.MarkChanged(job);
  if (report.phase() == v1::EXITED) {
    RecordExit(job, rank, report);
  } else {
    generation.Reach(rank, report.phase());
  }
}

void Reports::NoteStarted(const Job& job, const RankState& rank) {
  const GenerationState& generation = *job.generation;
  const auto [first, end] = generation.RanksOf(rank.node_rank);
  const bool all_started =
      std::all_of(generation.ranks.begin() + first, generation.ranks.begin() + end,
                  [](const RankState& local) { return local.started; });
  if (all_started) nodes_.NoteLaunchSuccess(NodeName(generation.placement(rank.node_rank).node()));
}

void Reports::NoteLaunchFailure(const Job& job, const RankState& rank) {
  const GenerationState& generation = *job.generation;
  const v1::ExitRecord& exit = generation.RecordOf(rank).exit();
  if (!exit.has_failure() || exit.failure().not_retryable() || exit.stopped_by_worker()) return;
  const auto [first, end] = generation.RanksOf(rank.node_rank);
  const bool counted =
      std::any_of(generation.ranks.begin() + first, generation.ranks.begin() + end,
                  [&](const RankState& local) {
                    return local.rank != rank.rank && !local.started && local.phase == v1::EXITED;
                  });
  if (counted) return;
  const NodeName node(generation.placement(rank.node_rank).node());
  // A job that could not be launched on another node either is probably the cause.
  const v1::FirstFailure& previous = job.status.first_failure();
  const bool failed_elsewhere = previous.reason() == reasons::kLaunchFailed &&
                                previous.node() != node.value() &&
                                previous.generation() + 1 == job.status.generation();
  if (!failed_elsewhere) nodes_.NoteLaunchFailure(node, exit.failure().message());
}

void Reports::ReachStep(Job& job, uint64_t step) {
  if (NoteStep(job, step)) jobs_.MarkJob(job);
}

void Reports::RecordExit(Job& job, RankState& rank, const v1::RankReport& report) {
  GenerationState& generation = *job.generation;
  v1::RankRecord& record = generation.RecordOf(rank);
  v1::ExitInfo exit = report.exit();
  if (!exit.has_failure() && report.has_failure()) {
    *exit.mutable_failure() = report.failure();
  } else if (!exit.has_failure() && rank.failure.has_value()) {
    *exit.mutable_failure() = *rank.failure;
  }
  const size_t used = std::min(generation.exit_text_bytes, limits::kExitTextBytesPerGeneration);
  exit = Bounded(std::move(exit), limits::kExitTextBytesPerGeneration - used);
  generation.exit_text_bytes += ExitTextBytes(exit);
  *record.mutable_exit() = ToRecord(exit);
  record.set_exited(true);
  generation.Reach(rank, v1::EXITED);
  nodes_.Vacate(NodeName(generation.placement(rank.node_rank).node()),
                {job.id(), generation.number(), rank.rank});
  scheduler_.OnCapacityChanged();
  jobs_.MarkPlacement(job, rank.node_rank);
  if (!rank.started) NoteLaunchFailure(job, rank);
  failures_.NoteExit(job, rank);
  hangs_.NoteExit(job, rank);
}

void Reports::RecordLostOutput(Job& job, const RankState& rank, const v1::LostOutput& lost,
                               bool exits) {
  const std::string& node = job.generation->placement(rank.node_rank).node();
  const int warnings = job.status.warnings_size();
  jobs_.Warn(job, rank.rank,
             absl::StrCat("node ", node,
                          " could not store all output, so logs lack lines: ", lost.reason()));
  if (!exits && job.status.warnings_size() == warnings) return;
  jobs_.AddEvent(
      job, events::kLogLinesLost,
      absl::StrCat("rank ", rank.rank, " on ", node, ": ", lost.lines(),
                   lost.lines() == 1 ? " line (" : " lines (", lost.bytes(), " bytes) of its logs ",
                   exits ? "are" : "have been", " lost: ", lost.reason()));
}

// Adds an event the first time, and then whenever the number has doubled: a job's history holds few
// events.
void Reports::RecordSkippedSteps(Job& job, const v1::Progress& progress) {
  const uint64_t skipped = progress.skipped_steps();
  const uint64_t reported = job.reported_skipped_steps;
  if (skipped == 0 || skipped / 2 < reported || skipped == reported) return;
  job.reported_skipped_steps = skipped;
  jobs_.AddEvent(job, events::kLossScaleLowered,
                 absl::StrCat("the loss scale is ", absl::StrFormat("%.12g", progress.loss_scale()),
                              " at step ", progress.step(), ": gradients overflowed; ", skipped,
                              skipped == 1 ? " step" : " steps", " skipped in total"));
}

void Reports::RecordLossAnomalies(Job& job, const RankState& rank, const v1::Progress& progress) {
  if (progress.loss_anomalies().empty()) return;
  v1::LossEventsRecord& reported = job.loss_events;
  if (reported.generation() != job.status.generation()) {
    reported.Clear();
    reported.set_generation(job.status.generation());
  }
  for (const v1::LossAnomaly& anomaly : progress.loss_anomalies()) {
    const bool finite = std::isfinite(anomaly.loss());
    // The ranks of a command have the same loss, or similar ones, in the same steps.
    v1::LossEventsRecord::Kind& kind =
        finite ? *reported.mutable_spikes() : *reported.mutable_non_finite();
    if (anomaly.step() < kind.next_step() || kind.count() == kLossEvents) continue;
    kind.set_next_step(anomaly.step() + 1);
    kind.set_count(kind.count() + 1);
    jobs_.MarkJob(job);
    std::string message = anomaly.step() > 0 ? absl::StrCat("the loss of step ", anomaly.step())
                                             : std::string("the loss");
    if (!job.is_train()) absl::StrAppend(&message, " on rank ", rank.rank);
    // The sign of a NaN has no meaning.
    const double value = std::isnan(anomaly.loss()) ? std::abs(anomaly.loss()) : anomaly.loss();
    absl::StrAppend(&message, " is ", absl::StrFormat("%.6g", value));
    if (finite) {
      absl::StrAppend(&message, "; the median of the steps before is ",
                      absl::StrFormat("%.6g", anomaly.typical()));
    }
    if (kind.count() == kLossEvents) {
      absl::StrAppend(&message, "; later ones of this generation are not reported");
    }
    jobs_.AddEvent(job, finite ? events::kLossSpike : events::kLossNotFinite, std::move(message));
  }
}

void Reports::RecordSummary(Job& job, const v1::TrainSummary& reported) {
  v1::TrainSummary& summary = *job.status.mutable_summary();
  summary = reported;
  if (summary.losses_size() > static_cast<int>(limits::kRecordedLosses)) {
    summary.mutable_losses()->Truncate(limits::kRecordedLosses);
  }
  if (summary.has_first_step_time()) {
    const absl::Time start = job.status.generation() == 1
                                 ? FromProto(job.status.submit_time())
                                 : context_.now.wall - (context_.now.steady - job.generation_start);
    summary.set_seconds_to_first_step(
        std::max(0.0, absl::ToDoubleSeconds(FromProto(summary.first_step_time()) - start)));
  }
  summary.set_resumed_from(job.status.checkpoint().continued_from());
  summary.set_resumed_job_id(job.status.checkpoint().continued_job_id());
  jobs_.MarkJob(job);
}

void Reports::OnStrayRanks(const Node& node, const JobId& id, Generation number,
                           const std::vector<const v1::RankReport*>& ranks, bool inventory) {
  const Job* const job = jobs_.Find(id);
  const v1::GenerationRecord* const record = job == nullptr ? nullptr : job->FindRecord(number);
  const bool lives = jobs_.FindLiving(id, number.value(), node.name()) != nullptr;
  const auto known = node.leftovers.find({id, number});
  std::set<uint32_t> leftovers =
      known == node.leftovers.end() ? std::set<uint32_t>() : known->second;
  const bool had_leftovers = !leftovers.empty();
  for (const v1::RankReport* report : ranks) {
    const RankRef ref{id, number, report->rank()};
    if (report->phase() == v1::EXITED) {
      if (leftovers.erase(report->rank()) == 0) continue;
      nodes_.Vacate(node.name(), ref);
      scheduler_.OnCapacityChanged();
    } else if (inventory && leftovers.insert(report->rank()).second && record != nullptr) {
      nodes_.Occupy(node.name(), ref, SlotsOf(*record, node.name(), report->rank()));
    }
  }
  const bool none_left = leftovers.empty();
  nodes_.SetLeftovers(node.name(), id, number, std::move(leftovers));
  for (const v1::RankReport* report : ranks) {
    const bool given_up =
        report->unkillable() || (inventory && IsUnkillable(record, node, report->rank()));
    const RankRef ref{id, number, report->rank()};
    if (given_up && node.HasLeftover(ref)) nodes_.SetUnkillable(node.name(), ref, report->pid());
  }
  if (none_left) {
    if (lives || (!inventory && !had_leftovers)) return;
    v1::ForgetGeneration forget;
    forget.set_job_id(id.value());
    forget.set_generation(number.value());
    forget.set_job_ended(job == nullptr || IsTerminal(job->state()));
    nodes_.SendForget(node, std::move(forget));
    return;
  }
  if (!inventory) return;  // already stopped
  v1::StopGeneration stop;
  stop.set_job_id(id.value());
  stop.set_generation(number.value());
  // For an unknown job, the worker uses the grace period of its record.
  if (job != nullptr) *stop.mutable_grace_period() = job->spec().grace_period();
  stop.set_reason(reasons::kNodeLost);
  stop.set_message("the job continued without these ranks or has ended");
  stop.set_abort(true);
  nodes_.SendStop(node, std::move(stop));
}

void Reports::OnLogTail(const Node& node, const v1::LogTail& tail) {
  Job* const job = jobs_.Find(JobId(tail.job_id()));
  const v1::GenerationRecord* const record =
      job == nullptr ? nullptr : job->FindRecord(Generation(tail.generation()));
  if (record == nullptr || SlotsOf(*record, node.name(), tail.rank()).empty()) return;
  const absl::Status added = jobs_.log_tails().Add(*job, tail);
  if (added.ok()) return;
  if (absl::IsInvalidArgument(added)) context_.stats.OnQuarantined("log_tail");
  jobs_.Warn(*job, tail.rank(), std::string(added.message()));
}

void Reports::OnSlots(const Node& node, const v1::SlotReport& report) {
  for (const v1::SlotCondition& condition : nodes_.SetConditions(node.name(), report)) {
    const std::string text =
        absl::StrCat(node.NameOfSlot(condition.index()), ": ", condition.unavailable());
    context_.Log(absl::StrCat("no ranks will be placed on ", text));
    const auto holders = node.busy.equal_range(condition.index());
    for (auto holder = holders.first; holder != holders.second; ++holder) {
      const RankRef& rank = holder->second;
      if (Job* job = jobs_.Find(rank.job); job != nullptr && !node.HasLeftover(rank)) {
        jobs_.AddEvent(*job, events::kDeviceUnhealthy,
                       absl::StrCat("rank ", rank.rank, " runs on ", text));
      }
    }
  }
  // A job may be waiting for a slot that has become healthy.
  scheduler_.OnCapacityChanged();
}

}  // namespace muster::core
