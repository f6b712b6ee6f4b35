// A node of the cluster: its worker, its slots and its ranks.
#ifndef MUSTER_COORDINATOR_CORE_NODES_NODE_H_
#define MUSTER_COORDINATOR_CORE_NODES_NODE_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/ids.h"
#include "common/time/time.h"
#include "coordinator/core/nodes/free_node.h"
#include "coordinator/core/nodes/node_ranks.h"
#include "proto/muster/v1/node.pb.h"
#include "proto/muster/v1/store.pb.h"
#include "proto/muster/v1/worker.pb.h"

namespace muster::core {

// The self-tests of a node's worker.
struct SelfTestState {
  uint64_t id = 0;            // of the newest request
  bool running = false;       // its answer is missing
  uint32_t failures = 0;      // in a row
  SteadyTime answered;        // when `report` arrived
  v1::SelfTestReport report;  // the newest; without checks: none yet
};

//           hello              stream broke, or lease ended
//   LOST ──────────▶ READY ──────────────────────────────────▶ SUSPECT
//     ▲               │  ▲               hello                │ │
//     │  lease ended  │  └────────────────────────────────────┘ │  last rank lost: its job's
//     │  and no ranks │                                         │  lease ended, or its stream
//     └───────────────┴─────────────────────────────────────────┘  broke and a peer lost it
struct Node {
  v1::NodeRecord record;
  v1::NodeState state = v1::LOST;
  v1::Hello hello;  // the last Hello, without its inventory
  std::string address;
  std::string metrics_address;
  std::string peer_address;          // address of its PeerService; empty: none
  std::optional<SessionId> session;  // set while READY
  bool seen = false;                 // has had a session with this coordinator process
  bool leaving = false;              // its worker is shutting down: no new ranks are placed on it
  // Why its ranks are left alone, see conflict.h; empty: they are not. No rank is placed on the
  // node, and its worker receives only what ends the conflict.
  std::string conflict;
  // An operator has ended the conflict of this incarnation, whose worker may not know it yet.
  bool conflict_ended = false;
  SteadyTime last_heard;
  // The beginning of the node's lease and of the leases of its ranks: last_heard, later by the
  // times at which the coordinator itself was stalled.
  SteadyTime lease_start;
  std::vector<std::string> peers;  // addresses last sent to its worker
  NodeRanks ranks;
  SelfTestState self_test;

  NodeName name() const { return NodeName(record.name()); }
  Incarnation incarnation() const { return Incarnation(record.incarnation()); }
  bool IsFenced(Incarnation incarnation) const;

  // Applies the worker's report about its slots. Returns the slots that it made unhealthy (not just
  // temporarily), with the reasons.
  std::vector<v1::SlotCondition> SetConditions(const v1::SlotReport& report);
  // "GPU 1 (GPU-…) of node-1"; "slot 3 of node-1" for a slot that is not a GPU.
  std::string NameOfSlot(uint32_t slot) const;

  // Kind and UUID of a slot; empty for an unknown slot.
  std::string KindOf(uint32_t slot) const;
  std::string UuidOf(uint32_t slot) const;
  std::set<std::string> Kinds() const;
  uint32_t SlotCount(absl::string_view kind) const;

  // Returns whether an operator has cordoned the node; the coordinator never ends such a cordon.
  bool IsCordonedByOperator() const { return record.cordoned() && !record.cordoned_by_health(); }
  // Returns whether failed launches keep ranks from the node for a while.
  bool IsCoolingDown() const { return record.has_cool_down_until(); }
  // Returns whether placement may use the slot once it is free.
  bool IsSlotUsable(const v1::Slot& slot) const;

  // The number of slots of `kind`, or of all kinds, that placement may use once they are free.
  uint32_t UsableSlots(absl::string_view kind = "") const;

  // The slots of `kind`. Returns nullopt for a node that is lost or leaving, and, except for
  // Offers::kAll, for one that is cordoned, in conflict or cooling down. Offers::kNow needs a node
  // that is READY.
  std::optional<FreeNode> Offer(absl::string_view kind, Offers offers = Offers::kNow) const;
};

// Checks what identifies the worker of a Hello. Errors: FAILED_PRECONDITION without a common
// protocol version, INVALID_ARGUMENT.
absl::Status CheckHello(const v1::Hello& hello);

// Returns `metrics_address` (host:port), with an empty host replaced by `address`.
std::string CompleteAddress(const std::string& metrics_address, const std::string& address);

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_NODES_NODE_H_
