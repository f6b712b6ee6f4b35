// What goes wrong in a generation, and what is made of it.
#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/proto_time.h"
#include "coordinator/core/core_impl.h"
#include "coordinator/core/reasons.h"

namespace muster::core {
namespace {

// Of one generation. In a large world everybody fails at once, and for the same reason.
constexpr size_t kFailureEvents = 16;

// What is known by now of a rank that has failed, ended or not.
v1::FirstFailure MakeRankFailure(const GenerationState& generation, const RankState& rank) {
  const v1::RankRecord& record = generation.RecordOf(rank);
  const std::string& node = generation.placement(rank.node_rank).node();
  v1::FirstFailure failure;
  failure.set_generation(generation.record.generation());
  failure.set_rank(rank.rank);
  failure.set_node(node);
  *failure.mutable_slots() = record.slots();
  *failure.mutable_exit() = record.exit();
  if (!record.exited() && rank.failure.has_value()) {
    *failure.mutable_exit()->mutable_failure() = *rank.failure;
  }
  const bool started = rank.started || !record.exited();
  failure.set_reason(ReasonOf(failure.exit(), started));
  failure.set_message(Describe(failure.exit(), rank.rank, node, started));
  return failure;
}

// Says that somebody else ended first.
bool IsConsequence(const v1::FailureReport& report) {
  return report.has_peer_rank() || report.code() == static_cast<int>(absl::StatusCode::kAborted) ||
         report.code() == static_cast<int>(absl::StatusCode::kCancelled);
}

// Of a job that failed very often the record keeps what its last generations said, and of the
// others that they failed.
void ForgetText(v1::Job& job) {
  constexpr int kWithText = 16;
  if (job.past_failures_size() <= kWithText) return;
  v1::ExitInfo& exit =
      *job.mutable_past_failures(job.past_failures_size() - 1 - kWithText)->mutable_exit();
  exit.clear_stderr_tail();
  exit.clear_failure();
}

void Accuse(GenerationState& generation, const v1::FailureReport& report, const RankState& by) {
  if (!report.has_peer_rank() || report.peer_rank() >= generation.ranks.size()) return;
  if (report.peer_rank() == by.rank) return;
  generation.ranks[report.peer_rank()].accused = true;
  generation.any_accused = true;
}

// Judged here over ranks that may be in good health: how they end then is no part of it.
bool IsVerdict(const v1::FirstFailure& failure) {
  return failure.reason() == reasons::kRendezvousTimedOut ||
         failure.reason() == reasons::kFingerprintMismatch ||
         failure.reason() == reasons::kRankHung;
}

// Nobody failed by itself, but a rank waited in vain for a peer: the peer is the cause, and the one
// that waited its witness.
std::optional<v1::FirstFailure> MakeHungFailure(const GenerationState& generation,
                                                const v1::FirstFailure& witness) {
  const v1::FailureReport& said = witness.exit().failure();
  if (said.code() != static_cast<int>(absl::StatusCode::kDeadlineExceeded)) return std::nullopt;
  if (!said.has_peer_rank() || said.peer_rank() >= generation.ranks.size()) return std::nullopt;
  const RankState& hung = generation.ranks[said.peer_rank()];
  v1::FirstFailure failure;
  failure.set_generation(generation.record.generation());
  failure.set_reason(reasons::kRankHung);
  failure.set_rank(hung.rank);
  failure.set_node(generation.placement(hung.node_rank).node());
  *failure.mutable_slots() = generation.RecordOf(hung).slots();
  failure.set_message(absl::StrCat("rank ", hung.rank, " on ", failure.node(),
                                   " took no part any more: ", witness.message()));
  *failure.mutable_time() = witness.time();
  return failure;
}

}  // namespace

void Core::Impl::NoteExit(Job& job, RankState& rank, const Node& node) {
  GenerationState& generation = *job.generation;
  const v1::ExitInfo& exit = generation.RecordOf(rank).exit();
  if (SeeksCause(job)) Accuse(generation, exit.failure(), rank);
  const bool unasked_stop = exit.stopped_by_worker() && job.state() != v1::STOPPING;
  if (unasked_stop && !exit.has_failure() && generation.failures.empty()) {
    // Its worker is ending, whether or not that has been said yet: the rank did nothing wrong.
    generation.displaced = Describe(exit, rank.rank, node.record.name(), rank.started);
    return;
  }
  if (!IsFailure(exit) && !unasked_stop) return;
  if (!SeeksCause(job)) return;
  if (exit.has_time() && !exit.stopped_by_worker()) {
    stats_.OnFailureDetected(now_.wall - FromProto(exit.time()));
  }
  v1::Job& proto = *job.record.mutable_job();
  v1::FirstFailure failure = MakeRankFailure(generation, rank);
  if (IsAttributed(job)) {
    // It is on record as the one that failed first; now it is known how it ended.
    if (!proto.first_failure().has_rank() || proto.first_failure().rank() != rank.rank) return;
    if (IsVerdict(proto.first_failure())) return;
    *failure.mutable_time() = proto.first_failure().time();
    *proto.mutable_past_failures(proto.past_failures_size() - 1) = failure;
    *proto.mutable_first_failure() = std::move(failure);
    MarkJob(job);
    return;
  }
  if (exit.has_time()) *failure.mutable_time() = exit.time();
  AddFailure(job, std::move(failure),
             IsConsequence(exit.failure()) || (exit.stopped_by_worker() && !unasked_stop));
}

void Core::Impl::NoteFailureReport(Job& job, RankState& rank) {
  GenerationState& generation = *job.generation;
  // That a rank goes which was asked to end says nothing of its node.
  if (!SeeksCause(job)) return;
  Accuse(generation, *rank.failure, rank);
  if (IsAttributed(job)) return;
  AddFailure(job, MakeRankFailure(generation, rank), IsConsequence(*rank.failure));
}

void Core::Impl::NoteNodeLost(Job& job, const Node& node, const std::string& why) {
  const std::string message = absl::StrCat("node ", node.record.name(), " was lost: ", why);
  AddEvent(job, events::kNodeLost, message);
  if (!SeeksCause(job) || IsAttributed(job)) return;
  stats_.OnFailureDetected(now_.steady - node.last_heard);
  v1::FirstFailure failure;
  failure.set_reason(reasons::kNodeLost);
  failure.set_node(node.record.name());
  failure.set_message(message);
  AddFailure(job, std::move(failure), /*consequence=*/false);
}

void Core::Impl::AddFailure(Job& job, v1::FirstFailure failure, bool consequence) {
  failure.set_generation(job.generation->record.generation());
  if (!failure.has_time()) *failure.mutable_time() = ToProto(now_.wall);
  if (job.generation->failures.size() < kFailureEvents && failure.has_rank()) {
    AddEvent(job, events::kRankFailed, failure.message());
  }
  job.generation->failures.Add(std::move(failure), consequence);
}

void Core::Impl::RecallFailures(Job& job) {
  GenerationState& generation = *job.generation;
  if (job.record.has_suspected_failure()) {
    const v1::FirstFailure& suspected = job.record.suspected_failure();
    if (suspected.rank() < generation.ranks.size()) {
      Accuse(generation, suspected.exit().failure(), generation.ranks[suspected.rank()]);
    }
    // A certain cause would have been recorded as the first failure.
    generation.failures.Add(suspected, /*consequence=*/true);
  }
  for (RankState& rank : generation.ranks) {
    const v1::RankRecord& record = generation.RecordOf(rank);
    if (!record.exited() || !IsFailure(record.exit())) continue;
    rank.started = true;
    if (!SeeksCause(job)) continue;
    Accuse(generation, record.exit().failure(), rank);
    v1::FirstFailure failure = MakeRankFailure(generation, rank);
    *failure.mutable_time() = record.exit().time();
    generation.failures.Add(std::move(failure), IsConsequence(record.exit().failure()) ||
                                                    record.exit().stopped_by_worker());
  }
}

bool Core::Impl::SeeksCause(const Job& job) const {
  return job.state() != v1::STOPPING || !job.generation->failures.empty();
}

bool Core::Impl::IsAttributed(const Job& job) const {
  return job.job().has_first_failure() &&
         job.job().first_failure().generation() == job.generation->record.generation();
}

bool Core::Impl::IsAccused(const GenerationState& generation,
                           const v1::FirstFailure& failure) const {
  if (failure.has_rank()) return generation.ranks[failure.rank()].accused;
  const std::optional<uint32_t> node_rank = generation.NodeRank(NodeName(failure.node()));
  if (!node_rank.has_value()) return false;
  const auto range = generation.RanksOf(*node_rank);
  return std::any_of(generation.ranks.begin() + range.first,
                     generation.ranks.begin() + range.second,
                     [](const RankState& rank) { return rank.accused; });
}

void Core::Impl::Attribute(Job& job, bool final) {
  if (!job.generation.has_value() || IsAttributed(job)) return;
  const GenerationState& generation = *job.generation;
  const v1::FirstFailure* cause = generation.failures.FindCause(
      [&](const v1::FirstFailure& failure) { return IsAccused(generation, failure); }, final);
  if (cause == nullptr) return;
  v1::FirstFailure failure = *cause;
  const bool of_a_rank = failure.has_rank() && !IsVerdict(failure);
  if (of_a_rank && generation.RecordOf(generation.ranks[failure.rank()]).exited()) {
    failure = MakeRankFailure(generation, generation.ranks[failure.rank()]);
    *failure.mutable_time() = cause->time();
  }
  if (auto hung = MakeHungFailure(generation, failure)) failure = *std::move(hung);
  timers_.Cancel({TimerKey::Kind::kCause, job.job().job_id()});
  AddEvent(job, events::kFirstFailure, failure.message());
  v1::Job& proto = *job.record.mutable_job();
  job.record.clear_suspected_failure();
  if (job.record.outcome() == v1::FAILED) {
    job.record.set_outcome_reason(failure.reason());
    job.record.set_outcome_message(failure.message());
    proto.set_reason(failure.reason());
    proto.set_message(failure.message());
  }
  *proto.add_past_failures() = failure;
  ForgetText(proto);
  *proto.mutable_first_failure() = std::move(failure);
  MarkJob(job);
}

void Core::Impl::LoseAccusedNodes(Job& job) {
  if (!job.generation.has_value() || !job.generation->any_accused) return;
  std::map<NodeName, uint32_t> nodes;  // with the rank that was seen to go
  for (const RankState& rank : job.generation->ranks) {
    if (!rank.accused || rank.gone()) continue;
    const NodeName name(job.generation->placement(rank.node_rank).node());
    const Node& node = nodes_.at(name);
    // Nodes are also SUSPECT before they have found a coordinator that was restarted; that says
    // nothing of them.
    if (node.state == v1::SUSPECT && node.seen) nodes.emplace(name, rank.rank);
  }
  for (const auto& [name, rank] : nodes) {
    LoseNode(nodes_.at(name),
             absl::StrCat("its stream broke, and a peer lost rank ", rank, ", which ran there"));
  }
}

bool Core::Impl::HasAccusedRank(const Node& node) {
  for (const auto& [id, number] : node.PlacedGenerations()) {
    const GenerationState* generation = FindGeneration(FindJob(id), number.value(), node.name());
    if (generation == nullptr) continue;
    const auto range = generation->RanksOf(*generation->NodeRank(node.name()));
    for (uint32_t rank = range.first; rank < range.second; ++rank) {
      if (generation->ranks[rank].accused && !generation->ranks[rank].gone()) return true;
    }
  }
  return false;
}

Core::Impl::RestartVerdict Core::Impl::MayRestart(const Job& job) const {
  const v1::Job& proto = job.job();
  const v1::FirstFailure& failure = proto.first_failure();
  if (failure.exit().failure().not_retryable()) {
    return {false, failure.reason(), "it is not tried again, for it would fail in the same way"};
  }
  const uint32_t budget = proto.spec().restart().max();
  const int failures = proto.past_failures_size();
  if (failures >= 2 && budget > proto.restarts()) {
    const v1::FirstFailure& before = proto.past_failures(failures - 2);
    if (before.generation() + 1 == failure.generation() && IsSameFailure(before, failure) &&
        job.record.highest_step() <= job.record.failed_at_step()) {
      return {false, reasons::kRepeatedFailure,
              absl::StrCat("generations ", before.generation(), " and ", failure.generation(),
                           " ended in the same way without a step between them")};
    }
  }
  if (proto.restarts() >= budget) {
    return {false, failure.reason(),
            budget == 0 ? "the job has no restarts"
                        : absl::StrCat("its ", budget,
                                       budget == 1 ? " restart is" : " restarts are", " used up")};
  }
  return {true, "", ""};
}

}  // namespace muster::core
