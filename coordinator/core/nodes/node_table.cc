#include "coordinator/core/nodes/node_table.h"

#include "coordinator/core/records.h"

namespace muster::core {
namespace {

// Whether a worker in conflict receives such messages.
bool IsForConflict(v1::CoordinatorMessage::KindCase kind) {
  return kind == v1::CoordinatorMessage::kWelcome ||
         kind == v1::CoordinatorMessage::kHeartbeatAck ||
         kind == v1::CoordinatorMessage::kSendJobRecords ||
         kind == v1::CoordinatorMessage::kJoinCluster;
}

}  // namespace

const Node* NodeTable::Find(const NodeName& name) const {
  const auto entry = nodes_.find(name);
  return entry == nodes_.end() ? nullptr : &entry->second;
}

Node* NodeTable::FindToEdit(const NodeName& name) {
  const auto entry = nodes_.find(name);
  return entry == nodes_.end() ? nullptr : &entry->second;
}

Node& NodeTable::Add(const NodeName& name) {
  const auto [entry, added] = nodes_.try_emplace(name);
  if (added) ++members_;
  entry->second.record.set_name(name.value());
  return entry->second;
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

void NodeTable::Occupy(const NodeName& name, const RankRef& rank,
                       const std::vector<uint32_t>& slots, bool exclusive) {
  changed_slots_.insert(name);
  nodes_.at(name).ranks.Occupy(rank, slots, exclusive);
}

void NodeTable::Vacate(const NodeName& name, const RankRef& rank) {
  changed_slots_.insert(name);
  NodeRanks& ranks = nodes_.at(name).ranks;
  if (ranks.HasUnkillable()) ++version_;
  ranks.Vacate(rank);
}

void NodeTable::SetLeftovers(const NodeName& name, const JobId& job, Generation generation,
                             std::set<uint32_t> ranks) {
  changed_slots_.insert(name);
  nodes_.at(name).ranks.SetLeftovers(job, generation, std::move(ranks));
}

void NodeTable::ClearLeftovers(const NodeName& name) {
  changed_slots_.insert(name);
  NodeRanks& ranks = nodes_.at(name).ranks;
  if (ranks.HasUnkillable()) ++version_;
  ranks.ClearLeftovers();
}

void NodeTable::SetUnkillable(const NodeName& name, const RankRef& rank, int64_t pid) {
  Node& node = nodes_.at(name);
  node.ranks.SetUnkillable(rank, pid);
  MarkOffer(node);
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

void NodeTable::Remove(const NodeName& name) {
  for (const TimerKey::Kind kind : {TimerKey::Kind::kLease, TimerKey::Kind::kJobLease,
                                    TimerKey::Kind::kSelfTest, TimerKey::Kind::kCoolDown}) {
    context_.timers.Cancel({kind, name.value()});
  }
  nodes_.erase(name);
  ++version_;
  ++members_;
  changed_.insert(name);
}

void NodeTable::WriteChanges() {
  for (const NodeName& name : std::exchange(changed_, {})) {
    const Node* const node = Find(name);
    context_.effects.writes.push_back(node == nullptr ? DeleteNode(name) : Put(node->record));
  }
}

}  // namespace muster::core
