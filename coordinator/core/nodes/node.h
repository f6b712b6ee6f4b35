// The nodes that the coordinator knows, what they offer, and who has which of their slots.
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
  bool seen = false;                 // by this coordinator: it has had a session
  bool leaving = false;              // this incarnation is ending: it takes no more ranks
  SteadyTime last_heard;
  // Who has which slot: ranks of generations that live, and leftovers. A slot may be on record as
  // one rank's while another one, that a returning worker still runs, sits on it.
  std::multimap<uint32_t, RankRef> busy;
  // Ranks that run though they do not count any more: of generations that are over, or lost ones.
  // Their slots are not free before they have ended.
  std::map<std::pair<JobId, Generation>, std::set<uint32_t>> leftovers;

  NodeName name() const { return NodeName(record.name()); }
  Incarnation incarnation() const { return Incarnation(record.incarnation()); }
  bool IsFenced(Incarnation incarnation) const;
  // Makes this the node's incarnation and fences the one before.
  void Replace(Incarnation incarnation);
  bool HasLeftover(const RankRef& rank) const;

  void Occupy(const RankRef& rank, const std::vector<uint32_t>& slots);
  void Vacate(const RankRef& rank);
  // The jobs of `busy` whose ranks are no leftovers.
  std::vector<std::pair<JobId, Generation>> PlacedGenerations() const;

  // What its worker says of its slots now. Returns those that have become ill by it (not only for
  // a moment), with the reason.
  std::vector<v1::SlotCondition> SetConditions(const v1::SlotReport& report);
  // "GPU 1 (GPU-…) of node-1"; "slot 3 of node-1" for one that is no GPU.
  std::string NameOfSlot(uint32_t slot) const;

  // Of its slots; "" for one that it does not have.
  std::string KindOf(uint32_t slot) const;
  std::string UuidOf(uint32_t slot) const;
  std::set<std::string> Kinds() const;
  uint32_t SlotCount(absl::string_view kind) const;

  // What placement may use of it: slots of `kind`; none when it takes no ranks now.
  std::optional<FreeNode> Offer(absl::string_view kind) const;
  // What it could if it were idle and all were well with it; none when it is lost or leaving.
  std::optional<FreeNode> IdleOffer(absl::string_view kind) const;
  v1::Node View(const Time& now) const;

 private:
  // Without slots.
  FreeNode Describe() const;
};

// Everything that a Hello can get wrong by itself. FAILED_PRECONDITION (protocol),
// INVALID_ARGUMENT.
absl::Status CheckHello(const v1::Hello& hello);

// host:port where an empty host in `metrics_address` stands for `address`.
std::string CompleteAddress(const std::string& metrics_address, const std::string& address);

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_NODES_NODE_H_
