// The nodes of the cluster: their sessions, leases and slots, and the requests of operators.
//
// The table owns every Node and hands out const references. Changes go through its methods, which
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
  // Changes whenever a node offers other slots than before to a job that runs alone.
  uint64_t version() const { return version_; }
  // The nodes whose free slots may have changed since the last call, apart from those by which the
  // version has changed.
  std::set<NodeName> TakeChangedSlots() { return std::exchange(changed_slots_, {}); }
  const Node* Find(const NodeName& name) const;  // null when unknown
  const Node& at(const NodeName& name) const { return nodes_.at(name); }

  // ---- Sessions
  // Admits the worker, makes its node READY and sends a Welcome. Returns null when the worker is
  // refused; its session is then closed with the reason. When the table is full, drops the lost
  // lost node that has been silent for longest and for which `is_needed` is false. `conflict`: see
  // Node.
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
  // Begins all leases now.
  void RestartLeases();
  // Begins all leases later by the time for which the coordinator was stalled.
  void ExtendLeases(absl::Duration by);
  // The peers that the session's worker has not been sent yet; empty when it knows them.
  std::vector<std::string> TakeNewPeers(const NodeName& name);
  // Ends the node's lease and session; the node becomes LOST.
  void Lose(const NodeName& name, const std::string& why);

  // Makes the worker, which is in conflict, join this cluster; it then opens a new session.
  void EndConflict(const NodeName& name);

  // A message to a node without a session is dropped, and one to a node in conflict unless it
  // belongs to the session itself or to the end of the conflict.
  void Send(const Node& node, v1::CoordinatorMessage message);
  void SendStop(const Node& node, v1::StopGeneration stop);
  void SendForget(const Node& node, v1::ForgetGeneration forget);
  void SendInspect(const Node& node, const JobId& job, Generation generation);
  void RequestJobRecords(const Node& node);

  // ---- Slots
  // `exclusive`: see Node::Occupy.
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

  // ---- Health; see node_health.cc. After two failed launches in a row, no ranks are placed on a
  // node for 30 s. If its worker tests itself, the node is then used again if it passes a
  // self-test. After a self-test that fails, or a third failed launch, the coordinator cordons the
  // node until it passes one. With other workers, a further failed launch doubles the time, up to
  // 10 min.
  void NoteLaunchFailure(const NodeName& name, const std::string& why);
  void NoteLaunchSuccess(const NodeName& name);
  void EndCoolDown(const NodeName& name);
  // Errors: NOT_FOUND, FAILED_PRECONDITION if the worker is not connected or too old.
  absl::Status TestNode(const NodeName& name);
  void OnSelfTest(const NodeName& name, const v1::SelfTestReport& report);
  // A self-test is due, or has not been answered.
  void OnSelfTestTimer(const NodeName& name);

  // ---- Operators, and workers that are shutting down. Unknown nodes are ignored.
  // Replaces a cordon by the coordinator.
  void Cordon(const NodeName& name, const std::string& reason);
  // Sets the time at which ranks that still run on the node are killed; nullopt: none.
  void SetDrainDeadline(const NodeName& name, std::optional<SteadyTime> until);
  // Also forgets failed launches and the drain deadline. Returns whether ranks were kept from the
  // node before.
  bool Uncordon(const NodeName& name);
  // Returns false if the node was already leaving.
  bool SetLeaving(const NodeName& name);
  // Deletes a known node without session or ranks, and its record.
  void Remove(const NodeName& name);

  // ---- Records
  // The node is SUSPECT, with a fresh lease in which to reconnect: until then, no other machine may
  // take its name.
  void Restore(v1::NodeRecord record);
  // Renews that lease, also of a node without a record: a living generation has ranks on it.
  void Expect(const v1::NodePlacement& placement);
  // Adds the writes of changed nodes to the step's effects.
  void WriteChanges();

 private:
  Node* Admit(const SessionOpened& event, const std::function<bool(const NodeName&)>& is_needed);
  // Checks that a new incarnation may take over the node's name. Errors: ALREADY_EXISTS.
  absl::Status CheckName(const Node& node, const v1::Hello& hello) const;
  bool MakeRoom(const std::function<bool(const NodeName&)>& is_needed);
  void SetConflict(Node& node, const std::string& conflict);
  void SendJoinCluster(const Node& node);
  void ArmLease(Node& node);
  void ArmCoolDown(const Node& node);
  // ---- node_health.cc
  // Tests the node after its worker has connected.
  void BeginHealth(Node& node);
  // The running self-test is not awaited any more, and none is due.
  void AbortSelfTest(Node& node);
  void StartSelfTest(Node& node);
  void ScheduleSelfTest(const Node& node, absl::Duration delay);
  void CordonByHealth(Node& node, std::string reason);
  void UncordonByHealth(Node& node, const std::string& why);
  void FinishCoolDown(Node& node);
  // Returns whether the node had any.
  bool ForgetFailedLaunches(Node& node);
  void Close(SessionId session, absl::Status status);

  Context& context_;
  NodeMap nodes_;
  uint64_t version_ = 1;
  std::map<SessionId, NodeName> sessions_;
  std::set<NodeName> changed_;
  std::set<NodeName> changed_slots_;
};

// Returns "<text>: <reason>", or `text` alone when there is no reason.
std::string WithReason(std::string text, const std::string& reason);

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_NODES_NODE_TABLE_H_
