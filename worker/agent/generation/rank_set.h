// The ranks of a generation on this node, and the reports about them to the coordinator.
#ifndef MUSTER_WORKER_AGENT_GENERATION_RANK_SET_H_
#define MUSTER_WORKER_AGENT_GENERATION_RANK_SET_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "proto/muster/v1/worker.pb.h"
#include "worker/agent/generation/generation_context.h"
#include "worker/agent/generation/ranks/rank.h"

namespace muster::agent {

// Reports changes of ranks, those of one loop iteration together. Must be used on the loop's
// thread.
class RankSet {
 public:
  // `events` of the ranks, except on_change. Context and launch must outlive the set.
  RankSet(const GenerationContext& context, const v1::Launch& launch, Rank::Events events);
  ~RankSet() { *self_ = nullptr; }
  RankSet(const RankSet&) = delete;
  RankSet& operator=(const RankSet&) = delete;

  std::map<uint32_t, Rank>& all() { return ranks_; }  // by rank
  // Null if the rank is not on this node.
  Rank* Find(uint32_t rank);
  // Whether the rank is on this node and has not exited.
  bool IsLive(uint32_t rank) const;
  // Whether every rank has exited.
  bool over() const;
  // Whether every rank has exited or is unkillable.
  bool settled() const;
  // Slots of running ranks.
  std::vector<uint32_t> SlotsInUse() const;
  // Inspects the running ranks, and sends each result to the coordinator.
  void Inspect();

  // The reports of all ranks, for a Hello.
  v1::GenerationReport Inventory();
  // Sends the changes since the newest Hello, whose session has just been opened: messages in
  // between were dropped.
  void ResendChanged();

 private:
  void OnChange(uint32_t rank);
  void SendChanged();

  const GenerationContext& context_;
  const v1::Launch& launch_;
  Rank::Events events_;
  std::set<uint32_t> changed_;
  std::set<uint32_t> changed_since_hello_;
  // For closures that outlive this object.
  const std::shared_ptr<RankSet*> self_ = std::make_shared<RankSet*>(this);
  std::map<uint32_t, Rank> ranks_;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_GENERATION_RANK_SET_H_
