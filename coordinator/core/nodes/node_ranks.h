// The ranks that run on a node: the slots that they occupy, and which of them are leftovers.
//
// A placed rank belongs to a living generation. A leftover still runs but no longer belongs to one,
// or was declared lost; its slots become free when it has exited. Not thread-safe.
#ifndef MUSTER_COORDINATOR_CORE_NODES_NODE_RANKS_H_
#define MUSTER_COORDINATOR_CORE_NODES_NODE_RANKS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/ids.h"

namespace muster::core {

struct RankRef {
  JobId job;
  Generation generation;
  uint32_t rank = 0;

  friend bool operator==(const RankRef& a, const RankRef& b) = default;
};

// A rank whose processes outlive SIGKILL, for example in uninterruptible sleep.
struct UnkillableRank {
  RankRef rank;
  int64_t pid = 0;  // 0: unknown
};

class NodeRanks {
 public:
  // `exclusive`: no other job may have slots of the node until all ranks of the job are vacated.
  void Occupy(const RankRef& rank, const std::vector<uint32_t>& slots, bool exclusive = false);
  void Vacate(const RankRef& rank);
  // The ranks by slot, placed ranks and leftovers. A slot has two when a returning worker still
  // runs a leftover on the slot of a placed rank.
  const std::multimap<uint32_t, RankRef>& by_slot() const { return by_slot_; }
  std::vector<uint32_t> SlotsOf(const RankRef& rank) const;
  // The job that has the node for itself.
  const std::optional<JobId>& exclusive_job() const { return exclusive_job_; }
  // The generations of the placed ranks, ascending.
  std::vector<std::pair<JobId, Generation>> PlacedGenerations() const;

  // ---- Leftovers
  // Replaces the leftovers of a generation. Does not change the slots that they occupy.
  void SetLeftovers(const JobId& job, Generation generation, std::set<uint32_t> ranks);
  // Vacates and removes all leftovers.
  void ClearLeftovers();
  bool HasLeftovers() const { return !leftovers_.empty(); }
  bool HasLeftover(const RankRef& rank) const;
  std::set<uint32_t> LeftoversOf(const JobId& job, Generation generation) const;
  // Returns whether leftovers run on any of the slots, or on slots that are unknown.
  bool MayHaveLeftoverOn(const std::vector<uint32_t>& slots) const;

  // ---- Unkillable ranks
  // Makes the rank a leftover that is unkillable until it is vacated.
  void SetUnkillable(const RankRef& rank, int64_t pid);
  bool HasUnkillable() const { return !unkillable_.empty(); }
  // The unkillable rank that occupies the slot; null when there is none.
  const UnkillableRank* FindUnkillable(uint32_t slot) const;

 private:
  std::multimap<uint32_t, RankRef> by_slot_;
  std::optional<JobId> exclusive_job_;
  // No set is empty.
  std::map<std::pair<JobId, Generation>, std::set<uint32_t>> leftovers_;
  std::vector<UnkillableRank> unkillable_;  // of the leftovers
};

// "unkillable rank 3 of train-x7k2, pid 4411".
std::string Describe(const UnkillableRank& held);

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_NODES_NODE_RANKS_H_
