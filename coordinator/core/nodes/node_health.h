// Decides whether ranks may be placed on a node. Failed launches, failed self-tests, operators and
// a worker that is shutting down prevent it.
//
// After two failed launches in a row, no ranks are placed on a node for 30 s. If its worker tests
// itself, the node is then used again if it passes a self-test. After a self-test that fails, or a
// third failed launch, the coordinator cordons the node until it passes one. With other workers, a
// further failed launch doubles the time, up to 10 min.
//
// Not thread-safe.
#ifndef MUSTER_COORDINATOR_CORE_NODES_NODE_HEALTH_H_
#define MUSTER_COORDINATOR_CORE_NODES_NODE_HEALTH_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/ids.h"
#include "common/time/time.h"
#include "coordinator/core/context.h"
#include "coordinator/core/nodes/node.h"
#include "coordinator/core/nodes/node_table.h"
#include "proto/muster/v1/worker.pb.h"

namespace muster::core {

class NodeHealth {
 public:
  NodeHealth(NodeTable& nodes, Context& context) : nodes_(nodes), context_(context) {}

  // ---- Launches
  void NoteLaunchFailure(const NodeName& name, const std::string& why);
  void NoteLaunchSuccess(const NodeName& name);
  void EndCoolDown(const NodeName& name);

  // ---- Self-tests
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
  // Returns false if the node, which must be known, was already leaving.
  bool SetLeaving(const NodeName& name);

  // ---- For NodeSessions
  // Tests the node after its worker has connected.
  void Begin(Node& node);
  // The running self-test is not awaited any more, and none is due.
  void AbortSelfTest(Node& node);
  // Continues the node's cool-down, if there is one.
  void Restore(const Node& node);

 private:
  void StartSelfTest(Node& node);
  void ScheduleSelfTest(const Node& node, absl::Duration delay);
  void CordonByHealth(Node& node, std::string reason);
  void UncordonByHealth(Node& node, const std::string& why);
  void FinishCoolDown(Node& node);
  // Returns whether the node had any.
  bool ForgetFailedLaunches(Node& node);

  NodeTable& nodes_;
  Context& context_;
};

// Returns "<text>: <reason>", or `text` alone when there is no reason.
std::string WithReason(std::string text, const std::string& reason);

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_NODES_NODE_HEALTH_H_
