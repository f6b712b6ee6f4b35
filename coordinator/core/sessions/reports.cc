#include "coordinator/core/sessions/reports.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/text/utf8.h"
#include "coordinator/core/jobs/first_failure.h"
#include "coordinator/core/jobs/job_record.h"
#include "coordinator/core/jobs/job_time.h"
#include "coordinator/core/reasons.h"
#include "coordinator/core/recovery/restart_policy.h"

namespace muster::core {
namespace {

constexpr size_t kFailureMessageBytes = 4096;
// The limit for a message once the generation's records have used up their space for text.
constexpr size_t kShortMessageBytes = 256;

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
  Job* const job = jobs_.table.FindLiving(id, report.generation(), node.name());
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
      context_.stats.Count("muster_quarantined_reports_total", {"rank"});
      jobs_.table.Warn(*job, rank.rank(),
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
  UpdateTimeAccount(*job, jobs_.table, context_);
  losses_.LoseAccusedNodes(*job);
  life_cycle_.Advance(*job);
  rendezvous_.AbortHopelessBarriers(*job);
  if (!strays.empty()) OnStrayRanks(node, id, number, strays, inventory);
}

void Reports::ApplyReport(Job& job, const v1::RankReport& report, bool inventory) {
  GenerationState& generation = *job.generation;
  RankState& rank = generation.ranks[report.rank()];
  for (const std::string& warning : report.warnings()) jobs_.table.Warn(job, rank.rank, warning);
  if (report.lost_output().bytes() > 0) {
    RecordLostOutput(job, rank, report.lost_output(),
                     report.phase() == v1::EXITED && rank.phase != v1::EXITED);
  }
  if (report.has_summary() && rank.rank == 0 && job.is_train() && !job.status.has_summary()) {
    RecordSummary(job, report.summary());
  }
  if (report.has_checkpoint() && rank.rank == 0) RecordCheckpoint(job, report.checkpoint());
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
      jobs_.histories.AddProgress(job);
    }
    ReachStep(job, report.progress().step());
    jobs_.table.MarkChanged(job);
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
    jobs_.table.MarkChanged(job);
  }
  if (report.unkillable() && report.phase() != v1::EXITED) {
    generations_.OnUnkillable(job, rank);
    return;
  }
  if (report.phase() <= rank.phase || !v1::RankPhase_IsValid(report.phase())) return;
  jobs_.table.MarkChanged(job);
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
  if (all_started) health_.NoteLaunchSuccess(NodeName(generation.placement(rank.node_rank).node()));
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
  if (!failed_elsewhere) health_.NoteLaunchFailure(node, exit.failure().message());
}

void Reports::ReachStep(Job& job, uint64_t step) {
  if (NoteStep(job, step)) jobs_.table.MarkJob(job);
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
  exit = Bounded(std::move(exit), generation.ExitTextRoom(rank.node_rank));
  generation.CountExitText(rank.node_rank, exit);
  *record.mutable_exit() = ToRecord(exit);
  record.set_exited(true);
  generation.Reach(rank, v1::EXITED);
  nodes_.Vacate(NodeName(generation.placement(rank.node_rank).node()),
                {job.id(), generation.number(), rank.rank});
  scheduler_.OnCapacityChanged();
  jobs_.table.MarkPlacement(job, rank.node_rank);
  if (!rank.started) NoteLaunchFailure(job, rank);
  failures_.NoteExit(job, rank);
  hangs_.NoteExit(job, rank);
}

void Reports::RecordLostOutput(Job& job, const RankState& rank, const v1::LostOutput& lost,
                               bool exits) {
  const std::string& node = job.generation->placement(rank.node_rank).node();
  const int warnings = job.status.warnings_size();
  jobs_.table.Warn(job, rank.rank,
                   absl::StrCat("node ", node, " could not store all output, so logs lack lines: ",
                                lost.reason()));
  if (!exits && job.status.warnings_size() == warnings) return;
  jobs_.table.AddEvent(
      job, events::kLogLinesLost,
      absl::StrCat("rank ", rank.rank, " on ", node, ": ", lost.lines(),
                   lost.lines() == 1 ? " line (" : " lines (", lost.bytes(), " bytes) of its logs ",
                   exits ? "are" : "have been", " lost: ", lost.reason()));
}

void Reports::OnStrayRanks(const Node& node, const JobId& id, Generation number,
                           const std::vector<const v1::RankReport*>& ranks, bool inventory) {
  const Job* const job = jobs_.table.Find(id);
  const v1::GenerationRecord* const record = job == nullptr ? nullptr : job->FindRecord(number);
  const bool lives = jobs_.table.FindLiving(id, number.value(), node.name()) != nullptr;
  std::set<uint32_t> leftovers = node.ranks.LeftoversOf(id, number);
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
    if (given_up && node.ranks.HasLeftover(ref))
      nodes_.SetUnkillable(node.name(), ref, report->pid());
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
  Job* const job = jobs_.table.Find(JobId(tail.job_id()));
  const v1::GenerationRecord* const record =
      job == nullptr ? nullptr : job->FindRecord(Generation(tail.generation()));
  if (record == nullptr || SlotsOf(*record, node.name(), tail.rank()).empty()) return;
  const absl::Status added = jobs_.log_tails.Add(*job, tail);
  if (added.ok()) return;
  if (absl::IsInvalidArgument(added))
    context_.stats.Count("muster_quarantined_reports_total", {"log_tail"});
  jobs_.table.Warn(*job, tail.rank(), std::string(added.message()));
}

void Reports::OnSlots(const Node& node, const v1::SlotReport& report) {
  for (const v1::SlotCondition& condition : nodes_.SetConditions(node.name(), report)) {
    const std::string text =
        absl::StrCat(node.NameOfSlot(condition.index()), ": ", condition.unavailable());
    context_.Log(absl::StrCat("no ranks will be placed on ", text));
    const auto holders = node.ranks.by_slot().equal_range(condition.index());
    for (auto holder = holders.first; holder != holders.second; ++holder) {
      const RankRef& rank = holder->second;
      if (Job* job = jobs_.table.Find(rank.job); job != nullptr && !node.ranks.HasLeftover(rank)) {
        jobs_.table.AddEvent(*job, events::kDeviceUnhealthy,
                             absl::StrCat("rank ", rank.rank, " runs on ", text));
      }
    }
  }
  // A job may be waiting for a slot that has become healthy.
  scheduler_.OnCapacityChanged();
}

}  // namespace muster::core
