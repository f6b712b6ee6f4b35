#include "coordinator/core/nodes/node_table.h"

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/proto_time.h"
#include "common/version.h"
#include "coordinator/core/records.h"

namespace muster::core {
namespace {

TimerKey LeaseOf(const NodeName& name) { return {TimerKey::Kind::kLease, name.value()}; }

}  // namespace

const Node* NodeTable::Find(const NodeName& name) const {
  const auto entry = nodes_.find(name);
  return entry == nodes_.end() ? nullptr : &entry->second;
}

std::optional<SteadyTime> NodeTable::LeaseEnd(const NodeName& name) const {
  return context_.timers.Get(LeaseOf(name));
}

// ------------------------------------------------------------------------------------------------
// sessions

const Node* NodeTable::Open(const SessionOpened& event,
                            const std::function<bool(const NodeName&)>& is_needed) {
  Node* const node = Admit(event, is_needed);
  if (node == nullptr) return nullptr;
  const v1::Hello& hello = event.hello;
  node->session = event.session;
  node->state = v1::READY;
  node->seen = true;
  node->last_heard = context_.now.steady;
  node->hello = hello;
  node->hello.clear_inventory();
  node->address =
      hello.advertise_address().empty() ? event.observed_address : hello.advertise_address();
  node->metrics_address = CompleteAddress(hello.metrics_address(), node->address);
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
  Send(*node, std::move(message));
  return node;
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
                               "the cluster has ", limits::kNodes, " nodes, the limit")));
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
    if (node.session.has_value()) {
      Close(event.session, absl::AlreadyExistsError(absl::StrCat(
                               "node name ", name.value(),
                               " is already in use by a live worker at ", node.address)));
      return nullptr;
    }
    node.Replace(incarnation);
    node.leaving = false;
    changed_.insert(name);
  }
  if (node.session.has_value()) {
    Close(*node.session, absl::AbortedError("a newer session of this worker replaced this one"));
  }
  return &node;
}

bool NodeTable::MakeRoom(const std::function<bool(const NodeName&)>& is_needed) {
  auto oldest = nodes_.end();
  for (auto entry = nodes_.begin(); entry != nodes_.end(); ++entry) {
    const Node& node = entry->second;
    if (node.state != v1::LOST || node.record.cordoned() || !node.busy.empty()) continue;
    if (is_needed(node.name())) continue;
    if (oldest == nodes_.end() || node.last_heard < oldest->second.last_heard) oldest = entry;
  }
  if (oldest == nodes_.end()) return false;
  changed_.insert(oldest->first);
  nodes_.erase(oldest);
  return true;
}

void NodeTable::ArmLease(const Node& node) {
  context_.timers.Set(LeaseOf(node.name()), context_.now.steady + context_.options.lease);
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
  node.state = v1::SUSPECT;
  return &node;
}

void NodeTable::Reject(const NodeName& name, absl::Status status) {
  Node& node = nodes_.at(name);
  Close(*node.session, std::move(status));
  node.session.reset();
  node.state = v1::SUSPECT;
}

void NodeTable::Lose(const NodeName& name, const std::string& why) {
  context_.timers.Cancel(LeaseOf(name));
  Node& node = nodes_.at(name);
  if (node.session.has_value()) {
    Close(*node.session,
          absl::UnavailableError(absl::StrCat("node ", name.value(), " was lost: ", why)));
    node.session.reset();
  }
  node.state = v1::LOST;
}

void NodeTable::Close(SessionId session, absl::Status status) {
  sessions_.erase(session);
  context_.effects.closes.push_back({session, std::move(status)});
}

void NodeTable::Send(const Node& node, v1::CoordinatorMessage message) {
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

void NodeTable::SendForget(const Node& node, const JobId& job, Generation generation,
                           bool delete_files) {
  v1::CoordinatorMessage message;
  message.mutable_forget()->set_job_id(job.value());
  message.mutable_forget()->set_generation(generation.value());
  message.mutable_forget()->set_delete_files(delete_files);
  Send(node, std::move(message));
}

// ------------------------------------------------------------------------------------------------
// slots

void NodeTable::Occupy(const NodeName& name, const RankRef& rank,
                       const std::vector<uint32_t>& slots) {
  nodes_.at(name).Occupy(rank, slots);
}

void NodeTable::Vacate(const NodeName& name, const RankRef& rank) { nodes_.at(name).Vacate(rank); }

void NodeTable::SetLeftovers(const NodeName& name, const JobId& job, Generation generation,
                             std::set<uint32_t> ranks) {
  Node& node = nodes_.at(name);
  if (ranks.empty()) {
    node.leftovers.erase({job, generation});
  } else {
    node.leftovers[{job, generation}] = std::move(ranks);
  }
}

void NodeTable::ClearLeftovers(const NodeName& name) {
  Node& node = nodes_.at(name);
  for (const auto& [generation, ranks] : std::exchange(node.leftovers, {})) {
    for (const uint32_t rank : ranks) node.Vacate({generation.first, generation.second, rank});
  }
}

std::vector<v1::SlotCondition> NodeTable::SetConditions(const NodeName& name,
                                                        const v1::SlotReport& report) {
  return nodes_.at(name).SetConditions(report);
}

// ------------------------------------------------------------------------------------------------
// operators

void NodeTable::Cordon(const NodeName& name, const std::string& reason) {
  const auto entry = nodes_.find(name);
  if (entry == nodes_.end()) return;
  v1::NodeRecord& record = entry->second.record;
  if (record.cordoned() && record.cordon_reason() == reason) return;
  record.set_cordoned(true);
  record.set_cordon_reason(reason);
  changed_.insert(name);
  context_.Log(WithReason(absl::StrCat("node ", name.value(), " was cordoned"), reason));
}

bool NodeTable::Uncordon(const NodeName& name) {
  const auto entry = nodes_.find(name);
  if (entry == nodes_.end() || !entry->second.record.cordoned()) return false;
  entry->second.record.clear_cordoned();
  entry->second.record.clear_cordon_reason();
  changed_.insert(name);
  context_.Log(absl::StrCat("node ", name.value(), " was uncordoned"));
  return true;
}

bool NodeTable::SetLeaving(const NodeName& name) {
  if (std::exchange(nodes_.at(name).leaving, true)) return false;
  context_.Log(absl::StrCat("node ", name.value(), " is leaving"));
  return true;
}

void NodeTable::Remove(const NodeName& name) {
  context_.timers.Cancel(LeaseOf(name));
  nodes_.erase(name);
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
  node.last_heard = context_.now.steady;
}

void NodeTable::Expect(const v1::NodePlacement& placement) {
  Node& node = nodes_[NodeName(placement.node())];
  if (node.record.name().empty()) {
    node.record.set_name(placement.node());
    node.record.set_incarnation(placement.incarnation());
  }
  node.state = v1::SUSPECT;
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
