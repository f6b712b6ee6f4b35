#include "coordinator/core/sessions/sessions.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/time/proto_time.h"
#include "coordinator/core/jobs/job.h"
#include "coordinator/core/nodes/conflict.h"
#include "coordinator/core/reasons.h"
#include "coordinator/core/records.h"

namespace muster::core {
namespace {

// Whether ranks on the node still belong to the generation.
bool HasRanksOn(const Job& job, uint64_t generation, const NodeName& node) {
  if (!job.generation.has_value() || job.generation->number().value() != generation) return false;
  const std::optional<uint32_t> node_rank = job.generation->NodeRank(node);
  if (!node_rank.has_value()) return false;
  const auto [first, end] = job.generation->RanksOf(*node_rank);
  return std::any_of(job.generation->ranks.begin() + first, job.generation->ranks.begin() + end,
                     [](const RankState& rank) { return !rank.lost; });
}

// Answers a worker whose heartbeats do not reach the coordinator, and which asks through a peer:
// the state of each generation of the question whose job exists. A generation without living ranks
// on the node, or whose worker was replaced, is lost: the job may run elsewhere.
v1::LeaseAnswer AnswerLease(const v1::LeaseQuestion& question, const JobTable& jobs,
                            const NodeTable& nodes, const Context& context) {
  v1::LeaseAnswer answer;
  answer.set_id(question.id());
  answer.set_cluster_id(context.store.cluster_id);
  answer.set_term(context.store.term());
  // Workers of earlier builds do not name a start.
  const std::string& start = question.coordinator_start();
  answer.set_commit_index(start.empty() ? context.store.commit_index
                                        : context.store.LastCommitOf(start));
  const NodeName name(question.node_name());
  const Node* const node = nodes.Find(name);
  const bool replaced = node == nullptr || node->IsFenced(Incarnation(question.incarnation()));
  for (const v1::LeasedGeneration& asked : question.generations()) {
    const Job* const job = jobs.Find(JobId(asked.job_id()));
    if (job == nullptr) continue;
    v1::LeasedGeneration& leased = *answer.add_generations();
    leased.set_job_id(asked.job_id());
    leased.set_generation(asked.generation());
    leased.set_lost(replaced || !HasRanksOn(*job, asked.generation(), name));
    if (leased.lost()) continue;
    const absl::Duration lease = LeaseOf(*job, context.options);
    const absl::Duration left = node->lease_start + lease - context.now.steady;
    // A lease that was extended (NodeTable::ExtendLeases) ends earlier once the node is heard again
    // or the coordinator restarts.
    *leased.mutable_time_left() = ToProto(std::clamp(left, absl::ZeroDuration(), lease));
  }
  return answer;
}

}  // namespace

void Sessions::Handle(const SessionOpened& event) {
  const absl::Status admitted = identities_.Admit(event);
  if (!admitted.ok()) {
    context_.Log(absl::StrCat("node ", event.hello.node_name(), " at ", event.observed_address,
                              " was refused: ", admitted.message()));
    context_.effects.closes.push_back({event.session, admitted});
    return;
  }
  const Node* const node = node_sessions_.Open(
      event, [this](const NodeName& name) { return !jobs_.ActiveOn(name).empty(); },
      ConflictOf(event.hello, context_.store,
                 [this](const std::string& job) { return jobs_.Find(JobId(job)) != nullptr; }));
  if (node == nullptr) return;
  for (const v1::GenerationReport& report : event.hello.inventory()) {
    ReserveGeneration(jobs_, JobId(report.job_id()), report.generation());
  }
  for (const auto& [id, number] : node->ranks.PlacedGenerations()) {
    if (fence_.Awaits({node->name(), id, number})) rendezvous_.RestartPhase(jobs_.at(id));
  }
  fence_.OnOpened(*node);
  scheduler_.OnCapacityChanged();
  NoteCorrections(*node, event.corrections);
  if (!node->conflict.empty()) return;
  Reconcile(*node, event.hello);
}

void Sessions::Handle(const Listening& event) {
  std::vector<CoordinatorStart>& starts = context_.store.starts;
  const auto last =
      std::find_if(std::next(starts.rbegin()), starts.rend(),
                   [](const CoordinatorStart& start) { return !start.address.empty(); });
  starts.back().machine_id = event.machine_id;
  starts.back().address = event.address;
  context_.effects.writes.push_back(PutStart(context_.store));
  context_.leases_end = true;
  node_sessions_.RestartLeases();
  if (last == starts.rend()) return;
  if (last->machine_id == event.machine_id && last->address == event.address) return;
  context_.Log(absl::StrCat("this coordinator listens on ", event.address, " of machine ",
                            event.machine_id, ", the one before it on ", last->address,
                            " of machine ", last->machine_id,
                            "; command jobs on nodes that do not reconnect wait for `muster node "
                            "lost`"));
  losses_.ExpectReports();
}

void Sessions::Handle(const Closing&) { context_.leases_end = false; }

void Sessions::Handle(const SessionClosed& event) {
  const Node* const node = node_sessions_.OnSessionClosed(event.session);
  if (node == nullptr) return;
  losses_.AddSuspectEvents(*node,
                           absl::StrCat("the stream of node ", node->record.name(), " broke"));
  for (const auto& [id, number] : node->ranks.PlacedGenerations()) {
    const Job* const job = jobs_.FindLiving(id, number.value(), node->name());
    if (job != nullptr) losses_.LoseAccusedNodes(*job);
  }
}

void Sessions::Handle(const SessionMessage& event) {
  const Node* const node = node_sessions_.RenewLease(event.session);
  if (node == nullptr) return;
  NoteCorrections(*node, event.corrections);
  const v1::WorkerMessage& message = event.message;
  if (!node->conflict.empty() && !message.has_heartbeat() && !message.has_job_records()) return;
  switch (message.kind_case()) {
    case v1::WorkerMessage::kHeartbeat: {
      v1::CoordinatorMessage ack;
      ack.mutable_heartbeat_ack()->set_sequence(message.heartbeat().sequence());
      for (std::string& peer : node_sessions_.TakeNewPeers(node->name())) {
        ack.mutable_heartbeat_ack()->add_peers(std::move(peer));
      }
      ack.mutable_heartbeat_ack()->set_commit_index(context_.store.commit_index);
      ack.mutable_heartbeat_ack()->set_term(context_.store.term());
      nodes_.Send(*node, std::move(ack));
      if (!node->conflict.empty()) break;
      for (const v1::GenerationReport& report : message.heartbeat().progress()) {
        reports_.OnReport(*node, report, /*inventory=*/false);
      }
      break;
    }
    case v1::WorkerMessage::kReport:
      reports_.OnReport(*node, message.report(), /*inventory=*/false);
      break;
    case v1::WorkerMessage::kPutKey:
      rendezvous_.PutKey(*node, message.put_key());
      break;
    case v1::WorkerMessage::kGetKey:
      rendezvous_.GetKey(*node, message.get_key());
      break;
    case v1::WorkerMessage::kArriveBarrier:
      rendezvous_.ArriveAtBarrier(*node, message.arrive_barrier());
      break;
    case v1::WorkerMessage::kLeaving:
      if (health_.SetLeaving(node->name())) {
        life_cycle_.MoveJobsAway(
            *node, absl::StrCat("the worker of node ", node->record.name(), " is shutting down"));
      }
      break;
    case v1::WorkerMessage::kSlots:
      reports_.OnSlots(*node, message.slots());
      break;
    case v1::WorkerMessage::kLogTail:
      reports_.OnLogTail(*node, message.log_tail());
      break;
    case v1::WorkerMessage::kInspection:
      hangs_.NoteInspection(*node, message.inspection());
      break;
    case v1::WorkerMessage::kLeaseQuestion: {
      v1::CoordinatorMessage answer;
      *answer.mutable_lease_answer() =
          AnswerLease(message.lease_question(), jobs_, nodes_, context_);
      nodes_.Send(*node, std::move(answer));
      break;
    }
    case v1::WorkerMessage::kBansKept:
      losses_.OnBansKept(node->name(), message.bans_kept());
      break;
    case v1::WorkerMessage::kFenceSetKept:
      fence_.OnSetKept(node->name(), message.fence_set_kept());
      break;
    case v1::WorkerMessage::kUnknownGeneration:
      OnUnknownGeneration(*node, message.unknown_generation());
      break;
    case v1::WorkerMessage::kJobRecords:
      takeovers_.OnJobRecords(*node, message.job_records(), event.corrections);
      break;
    case v1::WorkerMessage::kSelfTest:
      health_.OnSelfTest(node->name(), message.self_test());
      break;
    case v1::WorkerMessage::kLogUnavailable:  // handled by the service
    case v1::WorkerMessage::kTransferUnavailable:
    case v1::WorkerMessage::kHello:  // dropped by the service
    case v1::WorkerMessage::KIND_NOT_SET:
      break;
  }
}

void Sessions::NoteCorrections(const Node& node, const Corrections& corrections) {
  for (const Correction& correction : corrections) {
    const uint64_t count =
        context_.stats.Count("muster_quarantined_reports_total", {std::string(correction.field)});
    Warn(node, correction);
    // A rank may report a wrong field every second: log the first one and each doubling.
    if ((count & (count - 1)) != 0) continue;
    context_.Log(absl::StrCat("node ", node.record.name(), " reported a field out of bounds: ",
                              correction.problem, " (", count, " so far)"));
  }
}

void Sessions::Warn(const Node& node, const Correction& correction) {
  if (correction.job_id.empty()) return;
  Job* const job = jobs_.Find(JobId(correction.job_id));
  if (job == nullptr || !job->generation.has_value()) return;
  const std::optional<uint32_t> node_rank = job->generation->NodeRank(node.name());
  if (!node_rank.has_value()) return;  // not its job
  const auto [first, end] = job->generation->RanksOf(*node_rank);
  const uint32_t rank = correction.rank.value_or(first);
  jobs_.Warn(*job, rank >= first && rank < end ? rank : first, correction.problem);
}

// ------------------------------------------------------------------------------------------------
// reconciliation

void Sessions::Reconcile(const Node& node, const v1::Hello& hello) {
  losses_.OnReported(node.name());
  // From now on, the node's leftovers are those in this inventory.
  nodes_.ClearLeftovers(node.name());
  const std::vector<std::pair<JobId, Generation>> placed = node.ranks.PlacedGenerations();
  std::set<std::pair<JobId, Generation>> reported;
  for (const v1::GenerationReport& report : hello.inventory()) {
    const JobId id(report.job_id());
    reported.emplace(id, Generation(report.generation()));
    if (Job* const job = jobs_.FindLiving(id, report.generation(), node.name())) {
      rendezvous_.OnNewSession(*job, *job->generation->NodeRank(node.name()));
      Adopt(node, *job, report);
    }
    reports_.OnReport(node, report, /*inventory=*/true);
  }
  losses_.AbortHopelessBarriers(node.name());
  for (const auto& [id, number] : placed) {
    Job* const job = jobs_.FindLiving(id, number.value(), node.name());
    if (job == nullptr) continue;  // ended by a report processed above
    const uint32_t node_rank = *job->generation->NodeRank(node.name());
    if (reported.count({id, number}) == 0) {
      rendezvous_.OnNewSession(*job, node_rank);
      ReconcileMissing(node, *job, "its worker reconnected without the ranks that ran on it");
    } else if (job->generation->HasLiveRanks(node_rank)) {
      if (job->state() == v1::STOPPING) {
        generations_.SendStop(*job, node_rank);
      } else {
        rendezvous_.SendWorld(*job, node_rank);
      }
    }
  }
}

void Sessions::Adopt(const Node& node, Job& job, const v1::GenerationReport& report) {
  GenerationState& generation = *job.generation;
  const uint32_t node_rank = *generation.NodeRank(node.name());
  if (!generation.HasLiveRanks(node_rank)) return;
  v1::NodePlacement& placement = *generation.record.mutable_nodes(node_rank);
  if (placement.incarnation() != node.record.incarnation()) {
    placement.set_incarnation(node.record.incarnation());
    jobs_.MarkPlacement(job, node_rank);
  }
  std::set<uint32_t> present;
  for (const v1::RankReport& rank : report.ranks()) present.insert(rank.rank());
  const auto [first, end] = generation.RanksOf(node_rank);
  bool missing = false;
  for (uint32_t id = first; id < end; ++id) {
    RankState& rank = generation.ranks[id];
    if (rank.gone() || present.count(id) != 0) continue;
    if (!std::exchange(missing, true)) {
      failures_.NoteNodeLost(job, node, absl::StrCat("its worker reconnected without rank ", id));
    }
    losses_.LoseRank(job, rank);
  }
  if (!missing) {
    jobs_.AddEvent(
        job, events::kNodeAdopted,
        absl::StrCat("node ", node.record.name(), " reconnected with its ranks, which continue"));
  }
}

void Sessions::OnUnknownGeneration(const Node& node, const v1::UnknownGeneration& unknown) {
  const JobId id(unknown.job_id());
  const Generation number(unknown.generation());
  const std::set<uint32_t> leftovers = node.ranks.LeftoversOf(id, number);
  if (!leftovers.empty()) {
    for (const uint32_t rank : leftovers) nodes_.Vacate(node.name(), {id, number, rank});
    nodes_.SetLeftovers(node.name(), id, number, {});
    scheduler_.OnCapacityChanged();
  }
  Job* const job = jobs_.FindLiving(id, unknown.generation(), node.name());
  if (job == nullptr) return;
  if (job->generation->HasLiveRanks(*job->generation->NodeRank(node.name()))) {
    ReconcileMissing(node, *job, "its worker does not know the ranks that ran on it");
  }
}

void Sessions::ReconcileMissing(const Node& node, Job& job, const std::string& why) {
  GenerationState& generation = *job.generation;
  const uint32_t node_rank = *generation.NodeRank(node.name());
  const bool same_worker =
      generation.placement(node_rank).incarnation() == node.record.incarnation();
  const auto [first, end] = generation.RanksOf(node_rank);
  // A worker keeps the ranks that it started until it receives Forget, so the Launch never arrived.
  const bool never_launched =
      job.state() != v1::RUNNING &&
      std::all_of(generation.ranks.begin() + first, generation.ranks.begin() + end,
                  [](const RankState& rank) { return rank.phase == v1::PLACED; });
  // A store that was restored from a copy may have placed ranks on slots of which the worker has
  // ranks that the store does not know.
  const bool slots_taken = std::any_of(
      generation.ranks.begin() + first, generation.ranks.begin() + end, [&](const RankState& rank) {
        return node.ranks.MayHaveLeftoverOn(
            node.ranks.SlotsOf({job.id(), generation.number(), rank.rank}));
      });
  if (never_launched && same_worker && !slots_taken && job.state() == v1::STARTING) {
    return generations_.SendLaunch(job, node_rank);
  }
  if (never_launched && job.state() == v1::STARTING) {
    // The Launch crossed with the end of the previous worker, or would have to wait: nothing has
    // failed.
    failures_.Displace(job,
                       absl::StrCat("the worker of node ", node.record.name(),
                                    slots_taken ? " still runs other ranks on the slots"
                                                : " was replaced before it had started any rank"));
  } else if (!never_launched) {
    failures_.NoteNodeLost(job, node, why);
  }
  for (uint32_t rank = first; rank < end; ++rank) {
    losses_.LoseRank(job, generation.ranks[rank]);
  }
  life_cycle_.Advance(job);
}

}  // namespace muster::core
