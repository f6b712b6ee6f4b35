// The nodes of the cluster: their sessions, leases, slots and what operators asked for.
//
// The table owns every Node and hands out const references; changes go through its methods, which
// also keep the node's record and lease timer up to date.
//
// Not thread-safe.
#ifndef MUSTER_COORDINATOR_CORE_NODES_NODE_TABLE_H_
#define MUSTER_COORDINATOR_CORE_NODES_NODE_TABLE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/ids.h"
#include "common/time.h"
#include "coordinator/core/context.h"
#include "coordinator/core/event.h"
#include "coordinator/core/nodes/node.h"
#include "proto/muster/v1/store.pb.h"
#include "proto/muster/v1/worker.pb.h"

namespace muster::core {

using NodeMap = std::map<NodeName, Node>;

class NodeTable {
 public:
  explicit NodeTable(Context& context) : context_(context) {}

  const NodeMap& all() const { return nodes_; }
  const Node* Find(const NodeName& name) const;  // null when unknown
  const Node& at(const NodeName& name) const { return nodes_.at(name); }
  // When the node's lease ends; none when no lease runs.
  std::optional<SteadyTime> LeaseEnd(const NodeName& name) const;

  // ---- Sessions
  // Admits the worker, makes its node READY and sends a Welcome. Null when the worker is refused;
  // its session is then closed with the reason. A full table drops the lost node that has been
  // silent for longest, unless `is_needed`.
  const Node* Open(const SessionOpened& event,
                   const std::function<bool(const NodeName&)>& is_needed);
  // The session's node, with its lease renewed; null for a session that was replaced or closed.
  const Node* RenewLease(SessionId session);
  // The stream broke: the node is SUSPECT while its lease runs. Null for an unknown session.
  const Node* OnSessionClosed(SessionId session);
  // Closes the node's session with `status`; the node is SUSPECT.
  void Reject(const NodeName& name, absl::Status status);
  // Ends the node's lease and session; the node is LOST.
  void Lose(const NodeName& name, const std::string& why);

  // Messages are dropped when the node has no session.
  void Send(const Node& node, v1::CoordinatorMessage message);
  void SendStop(const Node& node, v1::StopGeneration stop);
  void SendForget(const Node& node, const JobId& job, Generation generation);

  // ---- Slots
  void Occupy(const NodeName& name, const RankRef& rank, const std::vector<uint32_t>& slots);
  void Vacate(const NodeName& name, const RankRef& rank);
  // The ranks of the generation that run on the node though they no longer count; none: an empty
  // set.
  void SetLeftovers(const NodeName& name, const JobId& job, Generation generation,
                    std::set<uint32_t> ranks);
  void ClearLeftovers(const NodeName& name);
  // See Node::SetConditions.
  std::vector<v1::SlotCondition> SetConditions(const NodeName& name, const v1::SlotReport& report);

  // ---- Operators, and workers that are ending. Unknown nodes are ignored.
  void Cordon(const NodeName& name, const std::string& reason);
  // Whether the node was cordoned.
  bool Uncordon(const NodeName& name);
  // False when it was leaving already.
  bool SetLeaving(const NodeName& name);

  // ---- Records
  void Restore(v1::NodeRecord record);
  // A living generation has ranks here: the node is SUSPECT and has a fresh lease to come back.
  void Expect(const v1::NodePlacement& placement);
  // Adds the writes of changed nodes to the step's effects.
  void WriteChanges();

 private:
  Node* Admit(const SessionOpened& event, const std::function<bool(const NodeName&)>& is_needed);
  bool MakeRoom(const std::function<bool(const NodeName&)>& is_needed);
  void ArmLease(const Node& node);
  void Close(SessionId session, absl::Status status);

  Context& context_;
  NodeMap nodes_;
  std::map<SessionId, NodeName> sessions_;
  std::set<NodeName> changed_;
};

// "<text>: <reason>", or the text alone when there is no reason.
std::string WithReason(std::string text, const std::string& reason);

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_NODES_NODE_TABLE_H_
