#include "coordinator/core/recovery/failures.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/time/proto_time.h"
#include "coordinator/core/jobs/job_record.h"
#include "coordinator/core/reasons.h"

namespace muster::core {
namespace {

// The most RankFailed events of one generation. In a large world, all ranks fail at once and for
// the same reason.
constexpr size_t kFailureEvents = 16;

// Returns what is known so far about a failed rank, which may not have exited yet.
v1::FirstFailure MakeRankFailure(const GenerationState& generation, const RankState& rank) {
  const v1::RankRecord& record = generation.RecordOf(rank);
  const std::string& node = generation.placement(rank.node_rank).node();
  v1::FirstFailure failure;
  failure.set_generation(generation.record.generation());
  failure.set_rank(rank.rank);
  failure.set_node(node);
  *failure.mutable_slots() = record.slots();
  *failure.mutable_exit() = FromRecord(record.exit());
  if (!record.exited() && rank.failure.has_value()) {
    *failure.mutable_exit()->mutable_failure() = *rank.failure;
  }
  const bool started = rank.started || !record.exited();
  failure.set_reason(ReasonOf(failure.exit(), started));
  failure.set_message(Describe(failure.exit(), rank.rank, node, started));
  return failure;
}

// Returns whether the report blames another rank for the failure.
bool IsConsequence(const v1::FailureReport& report) {
  return report.has_peer_rank() || report.code() == static_cast<int>(absl::StatusCode::kAborted) ||
         report.code() == static_cast<int>(absl::StatusCode::kCancelled);
}

// Bounds the record of a job that failed often: drops the text of older failures, and those in the
// middle.
void ForgetOldFailures(v1::Job& job) {
  constexpr int kWithText = 16;
  const int excess = job.past_failures_size() - kOldestKept - kNewestKept;
  if (excess > 0) {
    job.mutable_past_failures()->DeleteSubrange(kOldestKept, excess);
    job.set_past_failures_omitted(job.past_failures_omitted() + excess);
  }
  if (job.past_failures_size() <= kWithText) return;
  v1::ExitInfo& exit =
      *job.mutable_past_failures(job.past_failures_size() - 1 - kWithText)->mutable_exit();
  exit.clear_stderr_tail();
  exit.clear_failure();
}

// Returns whether the coordinator itself concluded the failure about a rank that may be healthy.
// How that rank ends afterwards does not change the failure.
bool IsVerdict(const v1::FirstFailure& failure) {
  return failure.reason() == reasons::kRendezvousTimedOut ||
         failure.reason() == reasons::kFingerprintMismatch ||
         failure.reason() == reasons::kRankHung;
}

// No rank failed by itself, but one timed out waiting for a peer: the peer is the cause, and the
// failure of the waiting rank is the evidence.
std::optional<v1::FirstFailure> MakeHungFailure(const GenerationState& generation,
                                                const v1::FirstFailure& witness) {
  const v1::FailureReport& report = witness.exit().failure();
  if (report.code() != static_cast<int>(absl::StatusCode::kDeadlineExceeded)) return std::nullopt;
  if (!report.has_peer_rank() || report.peer_rank() >= generation.ranks.size()) return std::nullopt;
  const RankState& hung = generation.ranks[report.peer_rank()];
  v1::FirstFailure failure;
  failure.set_generation(generation.record.generation());
  failure.set_reason(reasons::kRankHung);
  failure.set_rank(hung.rank);
  failure.set_node(generation.placement(hung.node_rank).node());
  *failure.mutable_slots() = generation.RecordOf(hung).slots();
  failure.set_message(absl::StrCat("rank ", hung.rank, " on ", failure.node(),
                                   " stopped participating: ", witness.message()));
  *failure.mutable_time() = witness.time();
  return failure;
}

}  // namespace

// ------------------------------------------------------------------------------------------------
// evidence

const Failures::Evidence* Failures::Find(const Job& job) const {
  const auto entry = evidence_.find(job.id());
  return entry == evidence_.end() ? nullptr : &entry->second;
}

const v1::FirstFailure* Failures::Earliest(const Job& job) const {
  const Evidence* const evidence = Find(job);
  return evidence == nullptr || evidence->log.empty() ? nullptr : &evidence->log.first();
}

const std::string* Failures::Displaced(const Job& job) const {
  const Evidence* const evidence = Find(job);
  return evidence == nullptr || !evidence->displaced.has_value() ? nullptr : &*evidence->displaced;
}

bool Failures::SeeksCause(const Job& job) const {
  return job.state() != v1::STOPPING || Earliest(job) != nullptr;
}

void Failures::Accuse(const Job& job, const v1::FailureReport& report, uint32_t by_rank) {
  if (!report.has_peer_rank() || report.peer_rank() >= job.generation->ranks.size()) return;
  if (report.peer_rank() == by_rank) return;
  Evidence& evidence = evidence_[job.id()];
  evidence.accused.insert(report.peer_rank());
  const std::vector<RankState>& ranks = job.generation->ranks;
  if (ranks[by_rank].node_rank != ranks[report.peer_rank()].node_rank) {
    evidence.accused_from_outside.insert(report.peer_rank());
  }
}

void Failures::NoteExit(Job& job, const RankState& rank) {
  const GenerationState& generation = *job.generation;
  const v1::ExitInfo exit = FromRecord(generation.RecordOf(rank).exit());
  if (SeeksCause(job)) Accuse(job, exit.failure(), rank.rank);
  const bool unasked_stop = exit.stopped_by_worker() && job.state() != v1::STOPPING;
  if (unasked_stop && !exit.has_failure() && Earliest(job) == nullptr) {
    // The worker is shutting down, whether or not it has reported so yet: this is no failure of the
    // rank.
    Displace(job,
             Describe(exit, rank.rank, generation.placement(rank.node_rank).node(), rank.started));
    return;
  }
  if (!IsFailure(exit) && !unasked_stop) return;
  if (!SeeksCause(job)) return;
  if (exit.has_time() && !exit.stopped_by_worker()) {
    context_.stats.Observe("muster_failure_detection_seconds",
                           context_.now.wall - FromProto(exit.time()));
  }
  v1::Job& status = job.status;
  v1::FirstFailure failure = MakeRankFailure(generation, rank);
  if (IsAttributed(job)) {
    // The rank is already recorded as the first failure; its exit adds the details.
    if (!status.first_failure().has_rank() || status.first_failure().rank() != rank.rank) return;
    if (IsVerdict(status.first_failure())) return;
    *failure.mutable_time() = status.first_failure().time();
    *status.mutable_past_failures(status.past_failures_size() - 1) = failure;
    *status.mutable_first_failure() = std::move(failure);
    jobs_.MarkJob(job);
    return;
  }
  if (exit.has_time()) *failure.mutable_time() = exit.time();
  Add(job, std::move(failure),
      IsConsequence(exit.failure()) || (exit.stopped_by_worker() && !unasked_stop));
}

void Failures::NoteReport(Job& job, const RankState& rank) {
  // A rank that disappears after it was asked to stop is no evidence against its node.
  if (!SeeksCause(job)) return;
  Accuse(job, *rank.failure, rank.rank);
  if (IsAttributed(job)) return;
  Add(job, MakeRankFailure(*job.generation, rank), IsConsequence(*rank.failure));
}

void Failures::NoteNodeLost(Job& job, const Node& node, const std::string& why) {
  const std::string message = absl::StrCat("node ", node.record.name(), " was lost: ", why);
  jobs_.AddEvent(job, events::kNodeLost, message);
  if (!SeeksCause(job) || IsAttributed(job)) return;
  context_.stats.Observe("muster_failure_detection_seconds", context_.now.steady - node.last_heard);
  v1::FirstFailure failure;
  failure.set_reason(reasons::kNodeLost);
  failure.set_node(node.record.name());
  failure.set_message(message);
  Add(job, std::move(failure), /*consequence=*/false);
}

void Failures::Add(Job& job, v1::FirstFailure failure, bool consequence) {
  failure.set_generation(job.generation->record.generation());
  if (!failure.has_time()) *failure.mutable_time() = ToProto(context_.now.wall);
  FailureLog& log = evidence_[job.id()].log;
  if (log.size() < kFailureEvents && failure.has_rank()) {
    jobs_.AddEvent(job, events::kRankFailed, failure.message());
  }
  log.Add(std::move(failure), consequence);
}

void Failures::Recall(Job& job) {
  GenerationState& generation = *job.generation;
  if (job.suspected_failure.has_value()) {
    const v1::FirstFailure& suspected = *job.suspected_failure;
    if (suspected.rank() < generation.ranks.size()) {
      Accuse(job, suspected.exit().failure(), suspected.rank());
    }
    // A certain cause would have been recorded as the first failure.
    evidence_[job.id()].log.Add(suspected, /*consequence=*/true);
  }
  for (RankState& rank : generation.ranks) {
    const v1::RankRecord& record = generation.RecordOf(rank);
    if (!record.exited() || rank.exited_cleanly) continue;
    const v1::ExitInfo exit = FromRecord(record.exit());
    rank.started = true;
    if (!SeeksCause(job)) continue;
    Accuse(job, exit.failure(), rank.rank);
    v1::FirstFailure failure = MakeRankFailure(generation, rank);
    *failure.mutable_time() = exit.time();
    evidence_[job.id()].log.Add(std::move(failure),
                                IsConsequence(exit.failure()) || exit.stopped_by_worker());
  }
}

// ------------------------------------------------------------------------------------------------
// conclusions

std::set<uint32_t> Failures::AccusedRanks(const Job& job) const {
  std::set<uint32_t> living;
  const Evidence* const evidence = Find(job);
  if (evidence == nullptr || !job.generation.has_value()) return living;
  for (const uint32_t rank : evidence->accused_from_outside) {
    if (!job.generation->ranks[rank].gone()) living.insert(rank);
  }
  return living;
}

bool Failures::IsAttributed(const Job& job) const {
  return job.status.has_first_failure() &&
         job.status.first_failure().generation() == job.generation->record.generation();
}

bool Failures::IsAccused(const Job& job, const v1::FirstFailure& failure) const {
  const std::set<uint32_t>& accused = evidence_.at(job.id()).accused;
  if (failure.has_rank()) return accused.count(failure.rank()) != 0;
  const GenerationState& generation = *job.generation;
  const std::optional<uint32_t> node_rank = generation.NodeRank(NodeName(failure.node()));
  if (!node_rank.has_value()) return false;
  const auto [first, end] = generation.RanksOf(*node_rank);
  const auto found = accused.lower_bound(first);
  return found != accused.end() && *found < end;
}

void Failures::ArmCauseTimer(const Job& job) {
  context_.timers.Set({TimerKey::Kind::kCause, job.status.job_id()},
                      context_.now.steady + context_.options.cause_window);
}

void Failures::Attribute(Job& job, bool final) {
  if (!job.generation.has_value() || IsAttributed(job)) return;
  const Evidence* const evidence = Find(job);
  if (evidence == nullptr) return;
  const GenerationState& generation = *job.generation;
  const v1::FirstFailure* cause = evidence->log.FindCause(
      [&](const v1::FirstFailure& failure) { return IsAccused(job, failure); }, final);
  if (cause == nullptr) return;
  v1::FirstFailure failure = *cause;
  const bool of_a_rank = failure.has_rank() && !IsVerdict(failure);
  if (of_a_rank && generation.RecordOf(generation.ranks[failure.rank()]).exited()) {
    failure = MakeRankFailure(generation, generation.ranks[failure.rank()]);
    *failure.mutable_time() = cause->time();
  }
  if (auto hung = MakeHungFailure(generation, failure)) failure = *std::move(hung);
  context_.timers.Cancel({TimerKey::Kind::kCause, job.status.job_id()});
  jobs_.AddEvent(job, events::kFirstFailure, failure.message());
  job.suspected_failure.reset();
  if (job.ending.outcome == v1::FAILED) {
    job.ending.reason = failure.reason();
    job.ending.message = failure.message();
    job.status.set_reason(failure.reason());
    job.status.set_message(failure.message());
  }
  *job.status.add_past_failures() = failure;
  ForgetOldFailures(job.status);
  *job.status.mutable_first_failure() = std::move(failure);
  jobs_.MarkJob(job);
}

}  // namespace muster::core
