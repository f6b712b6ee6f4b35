// The nodes of the cluster with their slots and records, and messages to their workers.
//
// The table owns every Node and hands out const references. Ranks on slots are changed here, leases
// and sessions by NodeSessions, and what keeps ranks from a node by NodeHealth.
//
// Not thread-safe.
#ifndef MUSTER_COORDINATOR_CORE_NODES_NODE_TABLE_H_
#define MUSTER_COORDINATOR_CORE_NODES_NODE_TABLE_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/ids.h"
#include "coordinator/core/context.h"
#include "coordinator/core/nodes/node.h"
#include "coordinator/core/nodes/node_ranks.h"
#include "proto/muster/v1/worker.pb.h"

namespace muster::core {

using NodeMap = std::map<NodeName, Node>;

class NodeTable {
 public:
  explicit NodeTable(Context& context) : context_(context) {}

  const NodeMap& all() const { return nodes_; }
  // Changes whenever a node offers other slots than before to a job that runs alone.
  uint64_t version() const { return version_; }
  // Changes whenever a node is added or removed.
  uint64_t members() const { return members_; }
  // The nodes whose state or free slots may have changed since the last call.
  std::set<NodeName> TakeChangedSlots() { return std::exchange(changed_slots_, {}); }
  const Node* Find(const NodeName& name) const;  // null when unknown
  const Node& at(const NodeName& name) const { return nodes_.at(name); }

  // ---- Messages
  // A message to a node without a session is dropped, and one to a node in conflict unless it
  // belongs to the session itself or to the end of the conflict.
  void Send(const Node& node, v1::CoordinatorMessage message);
  void SendStop(const Node& node, v1::StopGeneration stop);
  void SendForget(const Node& node, v1::ForgetGeneration forget);
  void SendInspect(const Node& node, const JobId& job, Generation generation);
  void RequestJobRecords(const Node& node);

  // ---- Slots
  // `exclusive`: see NodeRanks::Occupy.
  void Occupy(const NodeName& name, const RankRef& rank, const std::vector<uint32_t>& slots,
              bool exclusive = false);
  void Vacate(const NodeName& name, const RankRef& rank);
  // Sets the ranks of the generation that still run on the node although they no longer count. An
  // empty set removes the entry.
  void SetLeftovers(const NodeName& name, const JobId& job, Generation generation,
                    std::set<uint32_t> ranks);
  void ClearLeftovers(const NodeName& name);
  // Keeps the slots of a placed rank occupied until it is vacated: the rank becomes a leftover that
  // cannot be killed.
  void SetUnkillable(const NodeName& name, const RankRef& rank, int64_t pid);
  // See Node::SetConditions.
  std::vector<v1::SlotCondition> SetConditions(const NodeName& name, const v1::SlotReport& report);

  // Deletes a known node without session or ranks, and its record.
  void Remove(const NodeName& name);
  // Adds the writes of changed nodes to the step's effects.
  void WriteChanges();

  // ---- For NodeSessions and NodeHealth
  // The node, which is added if it is unknown.
  Node& Add(const NodeName& name);
  Node& Edit(const NodeName& name) { return nodes_.at(name); }
  Node* FindToEdit(const NodeName& name);  // null when unknown
  void MarkRecord(const Node& node) { changed_.insert(node.name()); }
  void MarkSlots(const Node& node) { changed_slots_.insert(node.name()); }
  // The node offers other slots; see version().
  void MarkOffer(const Node& node) {
    ++version_;
    MarkSlots(node);
  }

 private:
  Context& context_;
  NodeMap nodes_;
  uint64_t version_ = 1;
  uint64_t members_ = 1;
  std::set<NodeName> changed_;
  std::set<NodeName> changed_slots_;
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_NODES_NODE_TABLE_H_
