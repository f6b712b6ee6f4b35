// The sessions and leases of nodes.
//
// Not thread-safe.
#ifndef MUSTER_COORDINATOR_CORE_NODES_NODE_SESSIONS_H_
#define MUSTER_COORDINATOR_CORE_NODES_NODE_SESSIONS_H_

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/ids.h"
#include "coordinator/core/context.h"
#include "coordinator/core/event.h"
#include "coordinator/core/nodes/node.h"
#include "coordinator/core/nodes/node_health.h"
#include "coordinator/core/nodes/node_table.h"
#include "proto/muster/v1/store.pb.h"
#include "proto/muster/v1/worker.pb.h"

namespace muster::core {

class NodeSessions {
 public:
  NodeSessions(NodeTable& nodes, NodeHealth& health, Context& context)
      : nodes_(nodes), health_(health), context_(context) {}

  // Admits the worker, makes its node READY and sends a Welcome. Returns null when the worker is
  // refused; its session is then closed with the reason. When the table is full, drops the lost
  // node that has been silent for longest and for which `is_needed` is false. `conflict`: see Node.
  const Node* Open(const SessionOpened& event,
                   const std::function<bool(const NodeName&)>& is_needed,
                   const std::string& conflict = "");
  // Returns the session's node, with its lease renewed; null for a session that was replaced or
  // closed.
  const Node* RenewLease(SessionId session);
  // Handles a broken stream: the node is SUSPECT while its lease runs. Returns null for an unknown
  // session.
  const Node* OnSessionClosed(SessionId session);
  // Closes the node's session with `status`; the node becomes SUSPECT.
  void Reject(const NodeName& name, absl::Status status);
  // Ends the node's lease and session; the node becomes LOST.
  void Lose(const NodeName& name, const std::string& why);
  // Makes the worker, which is in conflict, join this cluster; it then opens a new session.
  void EndConflict(const NodeName& name);
  // The peers that the session's worker has not been sent yet; empty when it knows them.
  std::vector<std::string> TakeNewPeers(const NodeName& name);

  // Begins all leases now.
  void RestartLeases();
  // Begins all leases later by the time for which the coordinator was stalled.
  void ExtendLeases(absl::Duration by);
  // The node is SUSPECT, with a fresh lease in which to reconnect: until then, no other machine may
  // take its name.
  void Restore(v1::NodeRecord record);
  // Renews that lease, also of a node without a record: a living generation has ranks on it.
  void Expect(const v1::NodePlacement& placement);

 private:
  Node* Admit(const SessionOpened& event, const std::function<bool(const NodeName&)>& is_needed);
  // Checks that a new incarnation may take over the node's name. Errors: ALREADY_EXISTS.
  absl::Status CheckName(const Node& node, const v1::Hello& hello) const;
  bool MakeRoom(const std::function<bool(const NodeName&)>& is_needed);
  void SetConflict(Node& node, const std::string& conflict);
  void SendJoinCluster(const Node& node);
  void ArmLease(Node& node);
  void Close(SessionId session, absl::Status status);

  NodeTable& nodes_;
  NodeHealth& health_;
  Context& context_;
  std::map<SessionId, NodeName> sessions_;
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_NODES_NODE_SESSIONS_H_
