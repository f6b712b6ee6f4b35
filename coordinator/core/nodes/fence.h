// Decides when the ranks of a command job on a silent node have ended for certain, so that the job
// can be started elsewhere. docs/design/liveness.md has the rules and why they are safe.
//
// While the coordinator is unreachable, nodes may vouch for each other's ranks, whose leases are
// then extended: those of more than half of the *fence set*. Before ranks are declared lost, at
// least half of the set must have promised not to vouch for them again (a ban), and vouchers that
// they had given must have ended. The two groups have a member in common.
//
// A node may still use an older set than the newest, so bans must reach half of each set that it
// may use.
//
// Not thread-safe.
#ifndef MUSTER_COORDINATOR_CORE_NODES_FENCE_H_
#define MUSTER_COORDINATOR_CORE_NODES_FENCE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/time/time.h"
#include "common/ids.h"
#include "common/time/time.h"
#include "coordinator/core/context.h"
#include "coordinator/core/nodes/node_table.h"
#include "proto/muster/v1/cluster.pb.h"
#include "proto/muster/v1/store.pb.h"
#include "proto/muster/v1/worker.pb.h"

namespace muster::core {

class Fence {
 public:
  // More nodes than this have an empty fence set: they do not vouch for each other.
  static constexpr size_t kMembers = 128;

  // The ranks of a generation on a node.
  struct Ranks {
    NodeName node;
    JobId job;
    Generation generation;

    friend bool operator<(const Ranks& a, const Ranks& b) {
      return std::tie(a.node, a.job, a.generation) < std::tie(b.node, b.job, b.generation);
    }
  };

  Fence(NodeTable& nodes, Context& context) : nodes_(nodes), context_(context) {}

  // ---- The fence set
  void Restore(const v1::FenceRecord& record);
  // The node's worker has opened a session: its ranks are not banned any more.
  void OnOpened(const Node& node);
  // The node has stored the set, and uses it from now on.
  void OnSetKept(const NodeName& node, uint64_t id);
  // Adapts the set to the nodes, and sends what workers have to know. Called at the end of a step.
  void Update();

  // ---- Ranks of a node whose lease has ended
  // Whether the ranks have ended for certain. If not, asks the members of the fence set for bans.
  bool HaveEnded(const Ranks& ranks, absl::Duration lease);
  // Only the node or an operator can tell that the ranks have ended. `why` is for people.
  void AwaitConfirmation(const Ranks& ranks, std::string why);
  // Returns the nodes on whose ranks the answer bears.
  std::set<NodeName> OnBansKept(const NodeName& member, const v1::BansKept& kept);
  // When another voucher for ranks on the node ends; infinite if none is known.
  SteadyTime NextEnd(const NodeName& node) const;
  // The ranks have ended, or are not awaited any more.
  void Forget(const Ranks& ranks);
  // The generation's ranks that are awaited, and the nodes whose answers are missing.
  std::vector<v1::Wait> Waits(const JobId& job) const;
  bool Awaits(const Ranks& ranks) const { return awaited_.count(ranks) != 0; }
  // Whether ranks of any generation of the job are awaited.
  bool Awaits(const JobId& job) const;

 private:
  struct Awaited {
    SteadyTime since;
    std::string confirmation;  // why the node or an operator must confirm; empty: bans suffice
    absl::Duration lease;
    uint64_t round = 0;                   // of the first message with the ban
    std::map<NodeName, SteadyTime> kept;  // members' bans: when the voucher of each has ended
  };

  // The sets that the node may use, newest last; nullopt if it may use one that is unknown.
  std::optional<std::vector<const v1::FenceSet*>> SetsOf(const NodeName& node) const;
  // Whether the member has banned the ranks, and its vouchers for them have ended.
  bool HasBanned(const std::string& member, const Awaited& awaited) const;
  bool HaveHalfBanned(const v1::FenceSet& set, const Awaited& awaited) const;
  bool IsMember(const Node& node) const;
  void AdaptSet();
  void DropUnusedSets();
  void SendBans(const Node& node) const;

  NodeTable& nodes_;
  Context& context_;
  std::vector<v1::FenceSet> sets_;     // newest last
  std::map<NodeName, uint64_t> used_;  // the set that each node uses, once it has reported it
  std::map<NodeName, uint64_t> sent_;  // the set that each session was sent
  std::map<Ranks, Awaited> awaited_;
  uint64_t node_version_ = 0;  // NodeTable::version for which the set was adapted
  uint64_t next_id_ = 1;
  uint64_t round_ = 0;
  bool bans_changed_ = false;
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_NODES_FENCE_H_
