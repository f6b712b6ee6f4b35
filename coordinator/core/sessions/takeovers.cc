#include "coordinator/core/sessions/takeovers.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/time/proto_time.h"
#include "coordinator/core/reasons.h"

namespace muster::core {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(5);
const TimerKey kTimer = {TimerKey::Kind::kRecovery, ""};

// The number of generations of a recovered job that other stores may launch: the lost one, if it is
// found again, or a copy of it. This store continues above them. The number differs between
// coordinators, so that two stores that recover the same generation do not give the same number to
// the next one.
uint64_t NumbersOfOtherStores(const Options& options) {
  return 1000 + options.incarnation.value() % 9000;
}

// Whether the worker sends its records; those of protocol version 1 do not.
bool SendsRecords(const Node& node) { return node.hello.newest_protocol_version() >= 2; }

}  // namespace

void Takeovers::Handle(const RecoverJobs& event) {
  const absl::StatusOr<std::vector<const Node*>> nodes = Select(event);
  if (!nodes.ok()) {
    context_.effects.replies.push_back({event.request, nodes.status()});
    return;
  }
  if (event.discard) return Discard(event, *nodes);
  recovery_.emplace();
  recovery_->request = event.request;
  recovery_->actor = event.actor;
  for (const Node* const node : *nodes) {
    if (!SendsRecords(*node)) {
      recovery_->response.add_problems(
          absl::StrCat("node ", node->record.name(), " has Muster ", node->hello.software_version(),
                       ", whose worker cannot send its records; upgrade it, or discard its ranks"));
      continue;
    }
    recovery_->unanswered.insert(node->name());
    nodes_.RequestJobRecords(*node);
  }
  if (recovery_->unanswered.empty()) return Finish();
  context_.timers.Set(kTimer, context_.now.steady + kPatience);
}

absl::StatusOr<std::vector<const Node*>> Takeovers::Select(const RecoverJobs& event) const {
  if (recovery_.has_value()) {
    return absl::FailedPreconditionError("another recovery is in progress; try again");
  }
  if (event.discard && event.nodes.empty()) {
    return absl::InvalidArgumentError(
        "no nodes given; name the nodes whose ranks are to be discarded");
  }
  std::vector<const Node*> selected;
  for (const NodeName& name : event.nodes) {
    const Node* const node = nodes_.Find(name);
    if (node == nullptr) return absl::NotFoundError(absl::StrCat("no node ", name.value()));
    if (node->conflict.empty() || !node->session.has_value()) {
      return absl::FailedPreconditionError(
          absl::StrCat("node ", name.value(),
                       node->session.has_value() ? " is not in conflict" : " is not connected"));
    }
    selected.push_back(node);
  }
  if (!event.nodes.empty()) return selected;
  for (const auto& [name, node] : nodes_.all()) {
    if (!node.conflict.empty() && node.session.has_value()) selected.push_back(&node);
  }
  return selected;
}

void Takeovers::Discard(const RecoverJobs& event, const std::vector<const Node*>& nodes) {
  Reply reply{event.request, v1::Job()};
  for (const Node* const node : nodes) {
    context_.Log(DoneBy(absl::StrCat("the ranks of node ", node->record.name(),
                                     ", which this store does not have, were discarded"),
                        event.actor));
    reply.recovered.add_nodes(node->record.name());
    node_sessions_.EndConflict(node->name());
  }
  context_.effects.replies.push_back(std::move(reply));
}

void Takeovers::OnJobRecords(const Node& node, const v1::JobRecords& records,
                             const Corrections& corrections) {
  if (!recovery_.has_value() || recovery_->unanswered.count(node.name()) == 0) return;
  for (const Correction& correction : corrections) {
    recovery_->response.add_problems(
        absl::StrCat("node ", node.record.name(), ": ", correction.problem));
  }
  NodeRecords& of_node = recovery_->records[node.name()];
  of_node.node = node.record.name();
  of_node.address = node.address;
  of_node.incarnation = node.record.incarnation();
  of_node.records.MergeFrom(records);
  if (!records.last()) return;
  recovery_->unanswered.erase(node.name());
  if (recovery_->unanswered.empty()) Finish();
}

void Takeovers::Finish() {
  if (!recovery_.has_value()) return;
  context_.timers.Cancel(kTimer);
  Recovery recovery = *std::exchange(recovery_, std::nullopt);
  for (const NodeName& name : recovery.unanswered) {
    recovery.response.add_problems(absl::StrCat("node ", name.value(), " did not answer within ",
                                                absl::FormatDuration(kPatience)));
    recovery.records.erase(name);
  }
  std::vector<NodeRecords> records;
  for (auto& [name, of_node] : recovery.records) {
    // The worker may have reconnected without ranks since it answered.
    if (IsInConflict(name)) records.push_back(std::move(of_node));
  }
  for (RebuiltJob& job : RebuildJobs(records)) {
    const std::string id = job.job.status.job_id();
    if (!TakeOver(std::move(job))) continue;
    context_.Log(DoneBy(absl::StrCat("job ", id, " was recovered"), recovery.actor));
    recovery.response.add_job_ids(id);
  }
  for (const NodeRecords& of_node : records) {
    EndMissingRanks(of_node);
    recovery.response.add_nodes(of_node.node);
    node_sessions_.EndConflict(NodeName(of_node.node));
  }
  Reply reply{recovery.request, v1::Job()};
  reply.recovered = std::move(recovery.response);
  context_.effects.replies.push_back(std::move(reply));
}

bool Takeovers::IsInConflict(const NodeName& name) const {
  const Node* const node = nodes_.Find(name);
  return node != nullptr && !node->conflict.empty();
}

void Takeovers::EndMissingRanks(const NodeRecords& of_node) {
  const Node& node = nodes_.at(NodeName(of_node.node));
  std::vector<std::pair<JobId, Generation>> missing = node.ranks.PlacedGenerations();
  for (const v1::GenerationReport& report : of_node.records.reports()) {
    const JobId id(report.job_id());
    if (jobs_.table.FindLiving(id, report.generation(), node.name()) == nullptr) continue;
    std::erase(missing, std::make_pair(id, Generation(report.generation())));
    const bool ended = std::all_of(report.ranks().begin(), report.ranks().end(),
                                   [](const auto& rank) { return rank.phase() == v1::EXITED; });
    if (ended) reports_.OnReport(node, report, /*inventory=*/true);
  }
  losses_.LosePlaced(node, missing, "its worker does not have the ranks that ran on it");
}

bool Takeovers::TakeOver(RebuiltJob rebuilt) {
  const JobId id = rebuilt.job.id();
  Job* job = jobs_.table.Find(id);
  if (job == nullptr) {
    if (jobs_.eviction.IsForgotten(id)) return false;  // its records are being deleted
    *rebuilt.job.status.mutable_submit_time() = ToProto(context_.now.wall);
    rebuilt.job.submitted = context_.now.steady;
    job = &jobs_.submission.AddRecovered(std::move(rebuilt.job));
  } else if (IsTerminal(job->state()) || rebuilt.generation <= job->status.generation()) {
    return false;
  }
  ReserveGeneration(jobs_.table, id, rebuilt.generation + NumbersOfOtherStores(context_.options));
  Continue(*job, std::move(rebuilt.record), std::move(rebuilt.summary));
  return true;
}

void Takeovers::Continue(Job& job, std::optional<v1::GenerationRecord> record,
                         std::string message) {
  jobs_.table.AddEvent(job, events::kRecovered, message);
  // The dependencies were met when the generation started.
  jobs_.states.DropDependencies(job);
  if (job.generation.has_value()) {
    // The newer one was launched when this one had ended, or had been abandoned.
    const bool cancelled = job.state() == v1::STOPPING && job.ending.outcome != v1::FAILED;
    if (!cancelled) life_cycle_.StopAndRequeue(job, reasons::kRecovered, message);
    for (RankState& rank : job.generation->ranks) Abandon(job, rank);
    life_cycle_.Advance(job);
  }
  if (IsTerminal(job.state())) return;
  if (!record.has_value()) {
    if (job.state() != v1::QUEUED) return;  // held
    queueing_.Leave(job);
    return queueing_.Enter(job);
  }
  if (job.state() == v1::HELD) {
    jobs_.states.Transition(job, v1::QUEUED, reasons::kRecovered, message);
  }
  queueing_.Leave(job);
  generations_.Record(job, *std::move(record));
  jobs_.states.Transition(job, v1::STARTING, reasons::kRecovered, std::move(message));
  life_cycle_.Resume(job);
}

void Takeovers::Abandon(Job& job, RankState& rank) {
  GenerationState& generation = *job.generation;
  const NodeName name(generation.placement(rank.node_rank).node());
  const Node& node = nodes_.at(name);
  if (rank.gone()) return;
  if (!node.session.has_value() || !node.conflict.empty()) return losses_.LoseRank(job, rank);
  generation.MarkLost(rank);
  generation.RecordOf(rank).set_lost(true);
  jobs_.table.MarkPlacement(job, rank.node_rank);
  std::set<uint32_t> leftovers = node.ranks.LeftoversOf(job.id(), generation.number());
  leftovers.insert(rank.rank);
  nodes_.SetLeftovers(name, job.id(), generation.number(), std::move(leftovers));
}

}  // namespace muster::core
