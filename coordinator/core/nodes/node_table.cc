#include "coordinator/core/nodes/node_table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/proto_time.h"
#include "common/version.h"
#include "coordinator/core/nodes/peers.h"
#include "coordinator/core/records.h"
#include "coordinator/core/steady_clock.h"

namespace muster::core {
namespace {

TimerKey LeaseOf(const NodeName& name) { return {TimerKey::Kind::kLease, name.value()}; }
TimerKey JobLeaseOf(const NodeName& name) { return {TimerKey::Kind::kJobLease, name.value()}; }

// Whether a worker in conflict receives such messages.
bool IsForConflict(v1::CoordinatorMessage::KindCase kind) {
  return kind == v1::CoordinatorMessage::kWelcome ||
         kind == v1::CoordinatorMessage::kHeartbeatAck ||
         kind == v1::CoordinatorMessage::kSendJobRecords ||
         kind == v1::CoordinatorMessage::kJoinCluster;
}

// Whether the worker reports all generations with ranks on the node.
bool HasRanksOf(const Node& node, const v1::Hello& hello) {
  const auto placed = node.PlacedGenerations();
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

const Node* NodeTable::Find(const NodeName& name) const {
  const auto entry = nodes_.find(name);
  return entry == nodes_.end() ? nullptr : &entry->second;
}

// ------------------------------------------------------------------------------------------------
// sessions

const Node* NodeTable::Open(const SessionOpened& event,
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
  ++version_;
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
  node->peers = ChoosePeers(nodes_, node->name());
  welcome.mutable_peers()->Assign(node->peers.begin(), node->peers.end());
  welcome.set_cluster_id(context_.store.cluster_id);
  welcome.set_commit_index(context_.store.commit_index);
  welcome.set_coordinator_start(context_.store.starts.back().id);
  welcome.set_term(context_.store.term());
  welcome.set_conflict(node->conflict);
  welcome.set_protocol_version(
      CommonProtocolVersion(hello.protocol_version(), hello.newest_protocol_version()));
  Send(*node, std::move(message));
  // The worker did not receive the first one.
  if (!node->conflict.empty() && node->conflict_ended) SendJoinCluster(*node);
  BeginHealth(*node);
  return node;
}

void NodeTable::SetConflict(Node& node, const std::string& conflict) {
  if (!conflict.empty() && node.conflict != conflict) {
    context_.Log(absl::StrCat("node ", node.record.name(), " is in conflict: ", conflict,
                              "; its ranks are left alone: muster admin recover ",
                              node.record.name()));
  }
  node.conflict = conflict;
}

void NodeTable::EndConflict(const NodeName& name) {
  Node& node = nodes_.at(name);
  node.conflict_ended = true;
  if (node.hello.newest_protocol_version() != 0) return SendJoinCluster(node);
  Reject(name, absl::UnavailableError("the conflict has ended; reconnect"));
}

void NodeTable::SendJoinCluster(const Node& node) {
  v1::CoordinatorMessage message;
  message.mutable_join_cluster()->set_cluster_id(context_.store.cluster_id);
  message.mutable_join_cluster()->set_commit_index(context_.store.commit_index);
  message.mutable_join_cluster()->set_term(context_.store.term());
  Send(node, std::move(message));
}

Node* NodeTable::Admit(const SessionOpened& event,
                       const std::function<bool(const NodeName&)>& is_needed) {
  const v1::Hello& hello = event.hello;
  const absl::Status status = CheckHello(hello);
  if (!status.ok()) {
    Close(event.session, status);
    return nullptr;
  }
  const NodeName name(hello.node_name());
  const Incarnation incarnation(hello.incarnation());
  auto entry = nodes_.find(name);
  if (entry == nodes_.end()) {
    if (nodes_.size() >= limits::kNodes && !MakeRoom(is_needed)) {
      Close(event.session, absl::ResourceExhaustedError(absl::StrCat(
                               "the cluster has ", limits::kNodes,
                               " nodes, the limit; remove unused ones with `muster node remove`")));
      return nullptr;
    }
    entry = nodes_.emplace(name, Node()).first;
    entry->second.record.set_name(name.value());
  }
  Node& node = entry->second;
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
    node.Replace(incarnation);
    node.leaving = false;
    node.conflict_ended = false;
    changed_.insert(name);
  }
  if (node.record.machine_id() != hello.machine_id()) {
    node.record.set_machine_id(hello.machine_id());
    changed_.insert(name);
  }
  if (node.session.has_value()) {
    Close(*node.session, absl::AbortedError("a newer session of this worker replaced this one"));
  }
  return &node;
}

absl::Status NodeTable::CheckName(const Node& node, const v1::Hello& hello) const {
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

bool NodeTable::MakeRoom(const std::function<bool(const NodeName&)>& is_needed) {
  auto oldest = nodes_.end();
  for (auto entry = nodes_.begin(); entry != nodes_.end(); ++entry) {
    const Node& node = entry->second;
    if (node.state != v1::LOST || node.IsCordonedByOperator() || !node.busy.empty()) continue;
    if (is_needed(node.name())) continue;
    if (oldest == nodes_.end() || node.last_heard < oldest->second.last_heard) oldest = entry;
  }
  if (oldest == nodes_.end()) return false;
  changed_.insert(oldest->first);
  nodes_.erase(oldest);
  ++version_;
  return true;
}

void NodeTable::ArmLease(Node& node) {
  node.lease_start = context_.now.steady;
  context_.timers.Set(LeaseOf(node.name()), node.lease_start + context_.options.lease);
  context_.timers.Cancel(JobLeaseOf(node.name()));
}

void NodeTable::RestartLeases() {
  for (auto& [name, node] : nodes_) {
    if (node.state != v1::LOST) ArmLease(node);
  }
}

void NodeTable::ExtendLeases(absl::Duration by) {
  for (auto& [name, node] : nodes_) node.lease_start = node.lease_start + by;
}

std::vector<std::string> NodeTable::TakeNewPeers(const NodeName& name) {
  std::vector<std::string> peers = ChoosePeers(nodes_, name);
  Node& node = nodes_.at(name);
  if (peers == node.peers) return {};
  return node.peers = std::move(peers);
}

const Node* NodeTable::RenewLease(SessionId session) {
  const auto entry = sessions_.find(session);
  if (entry == sessions_.end()) return nullptr;
  Node& node = nodes_.at(entry->second);
  node.last_heard = context_.now.steady;
  ArmLease(node);
  return &node;
}

const Node* NodeTable::OnSessionClosed(SessionId session) {
  const auto entry = sessions_.find(session);
  if (entry == sessions_.end()) return nullptr;
  Node& node = nodes_.at(entry->second);
  sessions_.erase(entry);
  node.session.reset();
  AbortSelfTest(node);
  node.state = v1::SUSPECT;
  changed_slots_.insert(node.name());
  return &node;
}

void NodeTable::Reject(const NodeName& name, absl::Status status) {
  Node& node = nodes_.at(name);
  Close(*node.session, std::move(status));
  node.session.reset();
  AbortSelfTest(node);
  node.state = v1::SUSPECT;
  changed_slots_.insert(name);
}

void NodeTable::Lose(const NodeName& name, const std::string& why) {
  context_.timers.Cancel(LeaseOf(name));
  context_.timers.Cancel(JobLeaseOf(name));
  Node& node = nodes_.at(name);
  if (node.session.has_value()) {
    Close(*node.session,
          absl::UnavailableError(absl::StrCat("node ", name.value(), " was lost: ", why)));
    node.session.reset();
  }
  AbortSelfTest(node);
  node.state = v1::LOST;
  ++version_;
  node.conflict.clear();
}

void NodeTable::Close(SessionId session, absl::Status status) {
  sessions_.erase(session);
  context_.effects.closes.push_back({session, std::move(status)});
}

void NodeTable::Send(const Node& node, v1::CoordinatorMessage message) {
  if (!node.conflict.empty() && !IsForConflict(message.kind_case())) return;
  if (node.session.has_value()) {
    context_.effects.sends.push_back({*node.session, std::move(message)});
  }
}

void NodeTable::SendStop(const Node& node, v1::StopGeneration stop) {
  v1::CoordinatorMessage message;
  *message.mutable_stop() = std::move(stop);
  Send(node, std::move(message));
}

void NodeTable::SendInspect(const Node& node, const JobId& job, Generation generation) {
  v1::CoordinatorMessage message;
  message.mutable_inspect()->set_job_id(job.value());
  message.mutable_inspect()->set_generation(generation.value());
  Send(node, std::move(message));
}

void NodeTable::RequestJobRecords(const Node& node) {
  v1::CoordinatorMessage message;
  message.mutable_send_job_records();
  Send(node, std::move(message));
}

void NodeTable::SendForget(const Node& node, v1::ForgetGeneration forget) {
  v1::CoordinatorMessage message;
  *message.mutable_forget() = std::move(forget);
  Send(node, std::move(message));
}

// ------------------------------------------------------------------------------------------------
// slots

void NodeTable::Occupy(const NodeName& name, const RankRef& rank,
                       const std::vector<uint32_t>& slots, bool exclusive) {
  changed_slots_.insert(name);
  nodes_.at(name).Occupy(rank, slots, exclusive);
}

void NodeTable::Vacate(const NodeName& name, const RankRef& rank) {
  changed_slots_.insert(name);
  Node& node = nodes_.at(name);
  if (!node.unkillable.empty()) ++version_;
  node.Vacate(rank);
}

void NodeTable::SetLeftovers(const NodeName& name, const JobId& job, Generation generation,
                             std::set<uint32_t> ranks) {
  changed_slots_.insert(name);
  Node& node = nodes_.at(name);
  if (ranks.empty()) {
    node.leftovers.erase({job, generation});
  } else {
    node.leftovers[{job, generation}] = std::move(ranks);
  }
}

void NodeTable::ClearLeftovers(const NodeName& name) {
  changed_slots_.insert(name);
  Node& node = nodes_.at(name);
  if (!node.unkillable.empty()) ++version_;
  for (const auto& [generation, ranks] : std::exchange(node.leftovers, {})) {
    for (const uint32_t rank : ranks) node.Vacate({generation.first, generation.second, rank});
  }
}

std::vector<v1::SlotCondition> NodeTable::SetConditions(const NodeName& name,
                                                        const v1::SlotReport& report) {
  changed_slots_.insert(name);
  Node& node = nodes_.at(name);
  const auto usable = [&node] {
    std::vector<bool> slots;
    for (const v1::Slot& slot : node.hello.slots()) slots.push_back(node.IsSlotUsable(slot));
    return slots;
  };
  const std::vector<bool> before = usable();
  std::vector<v1::SlotCondition> unhealthy = node.SetConditions(report);
  if (usable() != before) ++version_;
  return unhealthy;
}

// ------------------------------------------------------------------------------------------------
// operators

void NodeTable::Cordon(const NodeName& name, const std::string& reason) {
  const auto entry = nodes_.find(name);
  if (entry == nodes_.end()) return;
  v1::NodeRecord& record = entry->second.record;
  if (entry->second.IsCordonedByOperator() && record.cordon_reason() == reason) return;
  record.set_cordoned(true);
  record.clear_cordoned_by_health();
  record.set_cordon_reason(reason);
  changed_.insert(name);
  ++version_;
  context_.Log(WithReason(absl::StrCat("node ", name.value(), " was cordoned"), reason));
}

void NodeTable::SetDrainDeadline(const NodeName& name, std::optional<SteadyTime> until) {
  const auto entry = nodes_.find(name);
  if (entry == nodes_.end()) return;
  v1::NodeRecord& record = entry->second.record;
  if (!until.has_value() && !record.has_drain_until()) return;
  record.clear_drain_until();
  if (until.has_value()) *record.mutable_drain_until() = ToStored(*until);
  changed_.insert(name);
}

bool NodeTable::Uncordon(const NodeName& name) {
  const auto entry = nodes_.find(name);
  if (entry == nodes_.end()) return false;
  Node& node = entry->second;
  const bool had_failures = ForgetFailedLaunches(node);
  if (!node.record.cordoned() && !had_failures) return false;
  node.record.clear_cordoned();
  node.record.clear_cordoned_by_health();
  node.record.clear_cordon_reason();
  node.record.clear_drain_until();
  node.self_test.failures = 0;
  AbortSelfTest(node);
  changed_.insert(name);
  ++version_;
  context_.Log(absl::StrCat("node ", name.value(), " was uncordoned"));
  return true;
}

bool NodeTable::SetLeaving(const NodeName& name) {
  if (std::exchange(nodes_.at(name).leaving, true)) return false;
  ++version_;
  context_.Log(absl::StrCat("node ", name.value(), " is leaving"));
  return true;
}

void NodeTable::Remove(const NodeName& name) {
  context_.timers.Cancel(LeaseOf(name));
  context_.timers.Cancel(JobLeaseOf(name));
  AbortSelfTest(nodes_.at(name));
  nodes_.erase(name);
  ++version_;
  changed_.insert(name);
}

std::string WithReason(std::string text, const std::string& reason) {
  return reason.empty() ? text : absl::StrCat(text, ": ", reason);
}

// ------------------------------------------------------------------------------------------------
// records

void NodeTable::Restore(v1::NodeRecord record) {
  Node& node = nodes_[NodeName(record.name())];
  node.record = std::move(record);
  node.state = v1::SUSPECT;
  node.last_heard = context_.now.steady;
  ArmLease(node);
  if (node.IsCoolingDown()) ArmCoolDown(node);
}

void NodeTable::Expect(const v1::NodePlacement& placement) {
  Node& node = nodes_[NodeName(placement.node())];
  if (node.record.name().empty()) {
    node.record.set_name(placement.node());
    node.record.set_incarnation(placement.incarnation());
  }
  if (node.session.has_value()) return;
  node.state = v1::SUSPECT;
  ++version_;
  node.last_heard = context_.now.steady;
  ArmLease(node);
}

void NodeTable::WriteChanges() {
  for (const NodeName& name : std::exchange(changed_, {})) {
    const Node* const node = Find(name);
    context_.effects.writes.push_back(node == nullptr ? DeleteNode(name) : Put(node->record));
  }
}

}  // namespace muster::core
