// A node of the cluster: its worker, its slots, and the ranks that hold them.
#ifndef MUSTER_COORDINATOR_CORE_NODES_NODE_H_
#define MUSTER_COORDINATOR_CORE_NODES_NODE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/ids.h"
#include "common/time.h"
#include "coordinator/core/nodes/free_node.h"
#include "proto/muster/v1/node.pb.h"
#include "proto/muster/v1/store.pb.h"
#include "proto/muster/v1/worker.pb.h"

namespace muster::core {

struct RankRef {
  JobId job;
  Generation generation;
  uint32_t rank = 0;

  friend bool operator==(const RankRef& a, const RankRef& b) {
    return a.job == b.job && a.generation == b.generation && a.rank == b.rank;
  }
};

//           hello                 stream broke
//   LOST ──────────▶ READY ──────────────────────▶ SUSPECT
//     ▲               │  ▲          hello            │ │
//     │  lease ended  │  └───────────────────────────┘ │  lease ended, or a peer of one of its
//     ranks └───────────────┴────────────────────────────────┘  saw the rank go as well
struct Node {
  v1::NodeRecord record;
  v1::NodeState state = v1::LOST;
  v1::Hello hello;  // the last one, without inventory
  std::string address;
  std::string metrics_address;
  std::optional<SessionId> session;  // while READY
  bool seen = false;                 // it has had a session with this coordinator
  bool leaving = false;              // its worker is ending: it takes no more ranks
  SteadyTime last_heard;
  // The holders of each slot: ranks of living generations, and leftovers. A slot has two holders
  // when a returning worker still runs a leftover on the slot of a placed rank.
  std::multimap<uint32_t, RankRef> busy;
  // Ranks that still run though they no longer count: their generation is over, or they are lost.
  // Their slots are free once they have ended.
  std::map<std::pair<JobId, Generation>, std::set<uint32_t>> leftovers;

  NodeName name() const { return NodeName(record.name()); }
  Incarnation incarnation() const { return Incarnation(record.incarnation()); }
  bool IsFenced(Incarnation incarnation) const;
  // Makes this the node's incarnation and fences the one before.
  void Replace(Incarnation incarnation);
  bool HasLeftover(const RankRef& rank) const;

  void Occupy(const RankRef& rank, const std::vector<uint32_t>& slots);
  void Vacate(const RankRef& rank);
  // The generations in `busy`, leftovers excluded.
  std::vector<std::pair<JobId, Generation>> PlacedGenerations() const;

  // Applies the worker's report about its slots. Returns those that became unhealthy by it (not
  // only for a moment), with the reason.
  std::vector<v1::SlotCondition> SetConditions(const v1::SlotReport& report);
  // "GPU 1 (GPU-…) of node-1"; "slot 3 of node-1" for one that is no GPU.
  std::string NameOfSlot(uint32_t slot) const;

  // Kind and UUID of a slot; "" for an unknown slot.
  std::string KindOf(uint32_t slot) const;
  std::string UuidOf(uint32_t slot) const;
  std::set<std::string> Kinds() const;
  uint32_t SlotCount(absl::string_view kind) const;

  // The slots of `kind` that placement may use; none when the node takes no ranks now.
  std::optional<FreeNode> Offer(absl::string_view kind) const;
  // The same for an idle node with healthy slots; none when it is lost or leaving.
  std::optional<FreeNode> IdleOffer(absl::string_view kind) const;
  v1::Node View(const Time& now) const;

 private:
  // The offer without slots.
  FreeNode Describe() const;
};

// Checks what a Hello shows by itself. FAILED_PRECONDITION (protocol), INVALID_ARGUMENT.
absl::Status CheckHello(const v1::Hello& hello);

// host:port where an empty host in `metrics_address` stands for `address`.
std::string CompleteAddress(const std::string& metrics_address, const std::string& address);

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_NODES_NODE_H_
