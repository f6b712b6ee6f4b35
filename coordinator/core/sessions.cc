// Nodes: how they come, what their workers say, and how they go.
#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/proto_time.h"
#include "common/version.h"
#include "coordinator/core/core_impl.h"
#include "coordinator/core/reasons.h"
#include "coordinator/core/rendezvous/agreement.h"

namespace muster::core {

// ------------------------------------------------------------------------------------------------
// coming and going

void Core::Impl::Handle(const SessionOpened& event) {
  Node* node = Admit(event);
  if (node == nullptr) return;
  const v1::Hello& hello = event.hello;
  node->session = event.session;
  node->state = v1::READY;
  node->seen = true;
  node->last_heard = now_.steady;
  node->hello = hello;
  node->hello.clear_inventory();
  node->address =
      hello.advertise_address().empty() ? event.observed_address : hello.advertise_address();
  node->metrics_address = CompleteAddress(hello.metrics_address(), node->address);
  sessions_[event.session] = node->name();
  timers_.Set({TimerKey::Kind::kLease, hello.node_name()}, now_.steady + options_.lease);
  capacity_changed_ = true;

  v1::CoordinatorMessage message;
  v1::Welcome& welcome = *message.mutable_welcome();
  welcome.set_coordinator_incarnation(options_.incarnation.value());
  welcome.set_software_version(kSoftwareVersion);
  *welcome.mutable_lease() = ToProto(options_.lease);
  *welcome.mutable_heartbeat_interval() = ToProto(options_.heartbeat_interval);
  welcome.set_observed_address(event.observed_address);
  SendTo(*node, std::move(message));
  Reconcile(*node, hello);
}

Node* Core::Impl::Admit(const SessionOpened& event) {
  const v1::Hello& hello = event.hello;
  const absl::Status status = CheckHello(hello);
  if (!status.ok()) {
    Close(event.session, status);
    return nullptr;
  }
  const NodeName name(hello.node_name());
  const Incarnation incarnation(hello.incarnation());
  Node* node = FindNode(name);
  if (node == nullptr) {
    if (nodes_.size() >= limits::kNodes && !MakeRoomForNode()) {
      Close(event.session, absl::ResourceExhaustedError(
                               absl::StrCat("the cluster has at most ", limits::kNodes, " nodes")));
      return nullptr;
    }
    node = &nodes_[name];
    node->record.set_name(name.value());
  }
  if (node->IsFenced(incarnation)) {
    Close(event.session, absl::AlreadyExistsError(
                             absl::StrCat("a newer worker has taken over as node ", name.value())));
    return nullptr;
  }
  if (node->incarnation() != incarnation) {
    if (node->session.has_value()) {
      Close(event.session,
            absl::AlreadyExistsError(absl::StrCat("a live worker is node ", name.value(),
                                                  " already, from ", node->address)));
      return nullptr;
    }
    node->Replace(incarnation);
    node->leaving = false;
    MarkNode(*node);
  }
  if (node->session.has_value()) {
    Close(*node->session, absl::AbortedError("a newer session of this worker replaced this one"));
  }
  return node;
}

bool Core::Impl::MakeRoomForNode() {
  auto oldest = nodes_.end();
  for (auto entry = nodes_.begin(); entry != nodes_.end(); ++entry) {
    const Node& node = entry->second;
    if (node.state != v1::LOST || node.record.cordoned() || !node.busy.empty()) continue;
    const bool in_use = std::any_of(active_.begin(), active_.end(), [&](const JobId& id) {
      return jobs_.at(id).generation->NodeRank(node.name()).has_value();
    });
    if (in_use) continue;
    if (oldest == nodes_.end() || node.last_heard < oldest->second.last_heard) oldest = entry;
  }
  if (oldest == nodes_.end()) return false;
  dirty_nodes_.insert(oldest->first);
  nodes_.erase(oldest);
  return true;
}

void Core::Impl::Handle(const SessionClosed& event) {
  const auto entry = sessions_.find(event.session);
  if (entry == sessions_.end()) return;
  Node& node = nodes_.at(entry->second);
  sessions_.erase(entry);
  node.session.reset();
  node.state = v1::SUSPECT;
  const std::vector<std::pair<JobId, Generation>> placed = node.PlacedGenerations();
  for (const auto& [id, generation] : placed) {
    AddEvent(jobs_.at(id), events::kNodeSuspect,
             absl::StrCat("the stream of node ", node.record.name(), " broke; its lease of ",
                          absl::FormatDuration(options_.lease), " runs"));
  }
  if (HasAccusedRank(node)) {
    LoseNode(node, "its stream broke after a peer had lost a rank that ran there");
  }
}

void Core::Impl::LoseNode(Node& node, const std::string& why) {
  timers_.Cancel({TimerKey::Kind::kLease, node.record.name()});
  if (node.session.has_value()) {
    Close(*node.session,
          absl::UnavailableError(absl::StrCat("node ", node.record.name(), " was lost: ", why)));
    node.session.reset();
  }
  node.state = v1::LOST;
  capacity_changed_ = true;  // what waited for it alone need not wait any more
  const std::vector<std::pair<JobId, Generation>> placed = node.PlacedGenerations();
  for (const auto& [id, number] : placed) {
    Job& job = jobs_.at(id);
    GenerationState& generation = *job.generation;
    const auto range = generation.RanksOf(*generation.NodeRank(node.name()));
    NoteNodeLost(job, node, why);
    for (uint32_t rank = range.first; rank < range.second; ++rank) {
      LoseRank(job, generation.ranks[rank], node);
    }
    Advance(job);
  }
  for (const JobId& id : active_) {
    Job& job = jobs_.at(id);
    if (job.generation->NodeRank(node.name()).has_value()) AbortHopelessBarriers(job);
  }
}

void Core::Impl::LoseRank(Job& job, RankState& rank, Node& node) {
  if (rank.gone()) return;
  GenerationState& generation = *job.generation;
  generation.MarkLost(rank);
  generation.RecordOf(rank).set_lost(true);
  node.Vacate({job.id(), Generation(generation.record.generation()), rank.rank});
  MarkPlacement(job, rank.node_rank);
}

// -------------------------------------------------------------------------------------------------
// reconciliation

void Core::Impl::Reconcile(Node& node, const v1::Hello& hello) {
  // Leftovers are what this inventory says, no more.
  for (const auto& [generation, ranks] : std::exchange(node.leftovers, {})) {
    for (const uint32_t rank : ranks) node.Vacate({generation.first, generation.second, rank});
  }
  const std::vector<std::pair<JobId, Generation>> placed = node.PlacedGenerations();
  std::set<std::pair<JobId, Generation>> reported;
  for (const v1::GenerationReport& report : hello.inventory()) {
    reported.emplace(JobId(report.job_id()), Generation(report.generation()));
    Job* job = FindJob(JobId(report.job_id()));
    if (GenerationState* generation = FindGeneration(job, report.generation(), node.name())) {
      generation->world_sent.erase(*generation->NodeRank(node.name()));
      Adopt(node, *job, report);
    }
    OnReport(node, report, /*inventory=*/true);
  }
  for (const JobId& id : active_) {
    Job& job = jobs_.at(id);
    if (job.generation->NodeRank(node.name()).has_value()) AbortHopelessBarriers(job);
  }
  for (const auto& [id, number] : placed) {
    Job& job = jobs_.at(id);
    GenerationState* generation = FindGeneration(&job, number.value(), node.name());
    if (generation == nullptr) continue;  // ended by what the others had to tell
    if (reported.count({id, number}) == 0) {
      generation->world_sent.erase(*generation->NodeRank(node.name()));
      ReconcileMissing(node, job);
    } else if (generation->HasLiveRanks(*generation->NodeRank(node.name()))) {
      SyncNode(job, *generation->NodeRank(node.name()), /*launch=*/false);
    }
  }
}

// The worker has the generation: its ranks go on under this incarnation. What it should have and
// has not is lost.
void Core::Impl::Adopt(Node& node, Job& job, const v1::GenerationReport& report) {
  GenerationState& generation = *job.generation;
  const uint32_t node_rank = *generation.NodeRank(node.name());
  if (!generation.HasLiveRanks(node_rank)) return;
  v1::NodePlacement& placement = *generation.record.mutable_nodes(node_rank);
  if (placement.incarnation() != node.record.incarnation()) {
    placement.set_incarnation(node.record.incarnation());
    MarkPlacement(job, node_rank);
  }
  std::set<uint32_t> present;
  for (const v1::RankReport& rank : report.ranks()) present.insert(rank.rank());
  const auto range = generation.RanksOf(node_rank);
  bool missing = false;
  for (uint32_t id = range.first; id < range.second; ++id) {
    RankState& rank = generation.ranks[id];
    if (rank.gone() || present.count(id) != 0) continue;
    if (!std::exchange(missing, true)) {
      NoteNodeLost(job, node, absl::StrCat("its worker came back without rank ", id));
    }
    LoseRank(job, rank, node);
  }
  if (!missing) {
    AddEvent(job, events::kNodeAdopted,
             absl::StrCat("node ", node.record.name(), " is back with its ranks, which go on"));
  }
}

// The worker knows nothing of a generation that the node has ranks of.
void Core::Impl::ReconcileMissing(Node& node, Job& job) {
  GenerationState& generation = *job.generation;
  const uint32_t node_rank = *generation.NodeRank(node.name());
  const bool same_worker =
      generation.placement(node_rank).incarnation() == node.record.incarnation();
  const auto range = generation.RanksOf(node_rank);
  // A worker keeps what it started until it is told to forget it: the Launch never arrived.
  const bool never_launched =
      job.state() != v1::RUNNING &&
      std::all_of(generation.ranks.begin() + range.first, generation.ranks.begin() + range.second,
                  [](const RankState& rank) { return rank.phase == v1::PLACED; });
  if (never_launched && same_worker && job.state() == v1::STARTING) {
    SyncNode(job, node_rank, /*launch=*/true);
    return;
  }
  if (never_launched && job.state() == v1::STARTING) {
    // It crossed with the end of the worker before this one: nothing has failed.
    generation.displaced = absl::StrCat("the worker of node ", node.record.name(),
                                        " was replaced before it had started any rank");
  } else if (!never_launched) {
    NoteNodeLost(job, node, "its worker came back without the ranks that ran there");
  }
  for (uint32_t rank = range.first; rank < range.second; ++rank) {
    LoseRank(job, generation.ranks[rank], node);
  }
  Advance(job);
}

void Core::Impl::SyncNode(Job& job, uint32_t node_rank, bool launch) {
  GenerationState& generation = *job.generation;
  const v1::NodePlacement& placement = generation.placement(node_rank);
  const Node& node = nodes_.at(NodeName(placement.node()));
  if (!node.session.has_value() || node.record.incarnation() != placement.incarnation()) return;
  if (!generation.HasLiveRanks(node_rank)) return;
  if (job.state() == v1::STOPPING) {
    SendStop(node, job.id(), Generation(generation.record.generation()),
             FromProto(job.record.stop_grace_period()), job.job().reason(), job.job().message(),
             job.record.abort_on_stop());
    return;
  }
  if (launch) SendTo(node, MakeLaunch(job, node_rank));
  if (!generation.agreement.has_value() || generation.world_sent.count(node_rank) != 0) return;
  const auto range = generation.RanksOf(node_rank);
  if (std::any_of(generation.ranks.begin() + range.first, generation.ranks.begin() + range.second,
                  [](const RankState& rank) { return rank.phase == v1::JOINED; })) {
    generation.world_sent.insert(node_rank);
    SendTo(node, MakeWorld(job, node_rank));
  }
}

void Core::Impl::SendStop(const Node& node, const JobId& job, Generation generation,
                          absl::Duration grace, const std::string& reason, const std::string& text,
                          bool abort) {
  v1::CoordinatorMessage message;
  v1::StopGeneration& stop = *message.mutable_stop();
  stop.set_job_id(job.value());
  stop.set_generation(generation.value());
  *stop.mutable_grace_period() = ToProto(grace);
  stop.set_reason(reason);
  stop.set_message(text);
  stop.set_abort(abort);
  SendTo(node, std::move(message));
}

void Core::Impl::SendForget(const Node& node, const JobId& job, Generation generation) {
  v1::CoordinatorMessage message;
  message.mutable_forget()->set_job_id(job.value());
  message.mutable_forget()->set_generation(generation.value());
  SendTo(node, std::move(message));
}

}  // namespace muster::core
