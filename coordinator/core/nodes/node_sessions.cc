#include "coordinator/core/nodes/node_sessions.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/time/proto_time.h"
#include "common/version.h"
#include "coordinator/core/nodes/peers.h"

namespace muster::core {
namespace {

constexpr int kFencedIncarnations = 16;

TimerKey LeaseOf(const NodeName& name) { return {TimerKey::Kind::kLease, name.value()}; }
TimerKey JobLeaseOf(const NodeName& name) { return {TimerKey::Kind::kJobLease, name.value()}; }

// Makes `incarnation` the node's incarnation and fences the previous one.
void ReplaceIncarnation(Node& node, Incarnation incarnation) {
  if (node.record.incarnation() != 0) {
    auto& fenced = *node.record.mutable_fenced_incarnations();
    if (fenced.size() == kFencedIncarnations) fenced.erase(fenced.begin());
    fenced.Add(node.record.incarnation());
  }
  node.record.set_incarnation(incarnation.value());
}

// Whether the worker reports all generations with ranks on the node.
bool HasRanksOf(const Node& node, const v1::Hello& hello) {
  const auto placed = node.ranks.PlacedGenerations();
  return std::all_of(placed.begin(), placed.end(), [&hello](const auto& generation) {
    return std::any_of(hello.inventory().begin(), hello.inventory().end(),
                       [&generation](const v1::GenerationReport& report) {
                         return report.job_id() == generation.first.value() &&
                                report.generation() == generation.second.value();
                       });
  });
}

// For people; workers of protocol version 1 do not report their machine.
std::string MachineText(const std::string& id) {
  return id.empty() ? "an unknown machine" : absl::StrCat("machine ", id);
}

}  // namespace

const Node* NodeSessions::Open(const SessionOpened& event,
                               const std::function<bool(const NodeName&)>& is_needed,
                               const std::string& conflict) {
  Node* const node = Admit(event, is_needed);
  if (node == nullptr) return nullptr;
  const v1::Hello& hello = event.hello;
  // Workers of protocol version 1 do not know of conflicts, so an operator's word suffices.
  const bool ended = node->conflict_ended && hello.newest_protocol_version() == 0;
  SetConflict(*node, ended ? "" : conflict);
  node->session = event.session;
  node->state = v1::READY;
  node->seen = true;
  node->last_heard = context_.now.steady;
  node->hello = hello;
  node->hello.clear_inventory();
  node->address =
      hello.advertise_address().empty() ? event.observed_address : hello.advertise_address();
  node->metrics_address = CompleteAddress(hello.metrics_address(), node->address);
  node->peer_address = CompleteAddress(hello.peer_address(), node->address);
  nodes_.MarkOffer(*node);
  sessions_[event.session] = node->name();
  ArmLease(*node);

  const Options& options = context_.options;
  v1::CoordinatorMessage message;
  v1::Welcome& welcome = *message.mutable_welcome();
  welcome.set_coordinator_incarnation(options.incarnation.value());
  welcome.set_software_version(kSoftwareVersion);
  *welcome.mutable_lease() = ToProto(options.lease);
  *welcome.mutable_heartbeat_interval() = ToProto(options.heartbeat_interval);
  welcome.set_observed_address(event.observed_address);
  node->peers = ChoosePeers(nodes_.all(), node->name());
  welcome.mutable_peers()->Assign(node->peers.begin(), node->peers.end());
  welcome.set_cluster_id(context_.store.cluster_id);
  welcome.set_commit_index(context_.store.commit_index);
  welcome.set_coordinator_start(context_.store.starts.back().id);
  welcome.set_term(context_.store.term());
  welcome.set_conflict(node->conflict);
  welcome.set_protocol_version(
      CommonProtocolVersion(hello.protocol_version(), hello.newest_protocol_version()));
  nodes_.Send(*node, std::move(message));
  // The worker did not receive the first one.
  if (!node->conflict.empty() && node->conflict_ended) SendJoinCluster(*node);
  health_.Begin(*node);
  return node;
}

void NodeSessions::SetConflict(Node& node, const std::string& conflict) {
  if (!conflict.empty() && node.conflict != conflict) {
    context_.Log(absl::StrCat("node ", node.record.name(), " is in conflict: ", conflict,
                              "; its ranks are left alone: muster admin recover ",
                              node.record.name()));
  }
  node.conflict = conflict;
}

void NodeSessions::EndConflict(const NodeName& name) {
  Node& node = nodes_.Edit(name);
  node.conflict_ended = true;
  if (node.hello.newest_protocol_version() != 0) return SendJoinCluster(node);
  Reject(name, absl::UnavailableError("the conflict has ended; reconnect"));
}

void NodeSessions::SendJoinCluster(const Node& node) {
  v1::CoordinatorMessage message;
  message.mutable_join_cluster()->set_cluster_id(context_.store.cluster_id);
  message.mutable_join_cluster()->set_commit_index(context_.store.commit_index);
  message.mutable_join_cluster()->set_term(context_.store.term());
  nodes_.Send(node, std::move(message));
}

Node* NodeSessions::Admit(const SessionOpened& event,
                          const std::function<bool(const NodeName&)>& is_needed) {
  const v1::Hello& hello = event.hello;
  const absl::Status status = CheckHello(hello);
  if (!status.ok()) {
    Close(event.session, status);
    return nullptr;
  }
  const NodeName name(hello.node_name());
  const Incarnation incarnation(hello.incarnation());
  if (nodes_.Find(name) == nullptr) {
    if (nodes_.all().size() >= limits::kNodes && !MakeRoom(is_needed)) {
      Close(event.session, absl::ResourceExhaustedError(absl::StrCat(
                               "the cluster has ", limits::kNodes,
                               " nodes, the limit; remove unused ones with `muster node remove`")));
      return nullptr;
    }
  }
  Node& node = nodes_.Add(name);
  if (node.IsFenced(incarnation)) {
    Close(event.session, absl::AlreadyExistsError(absl::StrCat(
                             "a newer worker has replaced this one as node ", name.value())));
    return nullptr;
  }
  if (node.incarnation() != incarnation) {
    const absl::Status free = CheckName(node, hello);
    if (!free.ok()) {
      Close(event.session, free);
      return nullptr;
    }
    ReplaceIncarnation(node, incarnation);
    node.leaving = false;
    node.conflict_ended = false;
    nodes_.MarkRecord(node);
  }
  if (node.record.machine_id() != hello.machine_id()) {
    node.record.set_machine_id(hello.machine_id());
    nodes_.MarkRecord(node);
  }
  if (node.session.has_value()) {
    Close(*node.session, absl::AbortedError("a newer session of this worker replaced this one"));
  }
  return &node;
}

absl::Status NodeSessions::CheckName(const Node& node, const v1::Hello& hello) const {
  const std::string& name = node.record.name();
  const std::string& machine = node.record.machine_id();
  // A worker that has the node's ranks is on the node's machine; otherwise, they may run elsewhere.
  const bool unknown = machine.empty() || hello.machine_id().empty();
  const bool moved = machine != hello.machine_id() && (!unknown || !HasRanksOf(node, hello));
  if (moved && node.state != v1::LOST) {
    std::optional<SteadyTime> end = context_.timers.Get(JobLeaseOf(node.name()));
    if (!end.has_value()) end = context_.timers.Get(LeaseOf(node.name()));
    const absl::Duration left =
        end.has_value() ? *end - context_.now.steady : context_.options.lease;
    return absl::AlreadyExistsError(absl::StrCat(
        "node name ", name, " belongs to ", MachineText(machine), " at ", node.address,
        ", whose lease lasts for ", absl::FormatDuration(absl::Ceil(left, absl::Seconds(1))),
        "; this worker runs on ", MachineText(hello.machine_id()),
        ": give it another --name, or stop the other worker"));
  }
  if (node.session.has_value()) {
    return absl::AlreadyExistsError(
        absl::StrCat("node name ", name, " is already in use by a live worker at ", node.address));
  }
  return absl::OkStatus();
}

bool NodeSessions::MakeRoom(const std::function<bool(const NodeName&)>& is_needed) {
  const Node* oldest = nullptr;
  for (const auto& [name, node] : nodes_.all()) {
    if (node.state != v1::LOST || node.IsCordonedByOperator() || !node.ranks.by_slot().empty())
      continue;
    if (is_needed(name)) continue;
    if (oldest == nullptr || node.last_heard < oldest->last_heard) oldest = &node;
  }
  if (oldest == nullptr) return false;
  nodes_.Remove(oldest->name());
  return true;
}

void NodeSessions::ArmLease(Node& node) {
  node.lease_start = context_.now.steady;
  context_.timers.Set(LeaseOf(node.name()), node.lease_start + context_.options.lease);
  context_.timers.Cancel(JobLeaseOf(node.name()));
}

void NodeSessions::RestartLeases() {
  for (const auto& [name, node] : nodes_.all()) {
    if (node.state != v1::LOST) ArmLease(nodes_.Edit(name));
  }
}

void NodeSessions::ExtendLeases(absl::Duration by) {
  for (const auto& [name, node] : nodes_.all()) {
    nodes_.Edit(name).lease_start = node.lease_start + by;
  }
}

std::vector<std::string> NodeSessions::TakeNewPeers(const NodeName& name) {
  std::vector<std::string> peers = ChoosePeers(nodes_.all(), name);
  Node& node = nodes_.Edit(name);
  if (peers == node.peers) return {};
  return node.peers = std::move(peers);
}

const Node* NodeSessions::RenewLease(SessionId session) {
  const auto entry = sessions_.find(session);
  if (entry == sessions_.end()) return nullptr;
  Node& node = nodes_.Edit(entry->second);
  node.last_heard = context_.now.steady;
  ArmLease(node);
  return &node;
}

const Node* NodeSessions::OnSessionClosed(SessionId session) {
  const auto entry = sessions_.find(session);
  if (entry == sessions_.end()) return nullptr;
  Node& node = nodes_.Edit(entry->second);
  sessions_.erase(entry);
  node.session.reset();
  health_.AbortSelfTest(node);
  node.state = v1::SUSPECT;
  nodes_.MarkSlots(node);
  return &node;
}

void NodeSessions::Reject(const NodeName& name, absl::Status status) {
  Node& node = nodes_.Edit(name);
  Close(*node.session, std::move(status));
  node.session.reset();
  health_.AbortSelfTest(node);
  node.state = v1::SUSPECT;
  nodes_.MarkSlots(node);
}

void NodeSessions::Lose(const NodeName& name, const std::string& why) {
  context_.timers.Cancel(LeaseOf(name));
  context_.timers.Cancel(JobLeaseOf(name));
  Node& node = nodes_.Edit(name);
  if (node.session.has_value()) {
    Close(*node.session,
          absl::UnavailableError(absl::StrCat("node ", name.value(), " was lost: ", why)));
    node.session.reset();
  }
  health_.AbortSelfTest(node);
  node.state = v1::LOST;
  nodes_.MarkOffer(node);
  node.conflict.clear();
}

void NodeSessions::Close(SessionId session, absl::Status status) {
  sessions_.erase(session);
  context_.effects.closes.push_back({session, std::move(status)});
}

void NodeSessions::Restore(v1::NodeRecord record) {
  Node& node = nodes_.Add(NodeName(record.name()));
  node.record = std::move(record);
  node.state = v1::SUSPECT;
  node.last_heard = context_.now.steady;
  ArmLease(node);
  health_.Restore(node);
}

void NodeSessions::Expect(const v1::NodePlacement& placement) {
  const bool known = nodes_.Find(NodeName(placement.node())) != nullptr;
  Node& node = nodes_.Add(NodeName(placement.node()));
  if (!known) node.record.set_incarnation(placement.incarnation());
  if (node.session.has_value()) return;
  node.state = v1::SUSPECT;
  nodes_.MarkOffer(node);
  node.last_heard = context_.now.steady;
  ArmLease(node);
}

}  // namespace muster::core
