// Brings the ranks of a living generation together: launch, join, world, key store and barriers.
//
// Keeps one state per living generation, in memory only. A restarted coordinator rebuilds it,
// because workers report joins, keys and barriers again in the Hello of each session. A worker
// whose ranks have exited may not return in time, so the barriers that they passed are recorded
// with their exits.
//
// Not thread-safe.
#ifndef MUSTER_COORDINATOR_CORE_RENDEZVOUS_RENDEZVOUS_H_
#define MUSTER_COORDINATOR_CORE_RENDEZVOUS_RENDEZVOUS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "coordinator/core/context.h"
#include "coordinator/core/jobs/job_table.h"
#include "coordinator/core/nodes/node_table.h"
#include "coordinator/core/owners/secret_table.h"
#include "coordinator/core/rendezvous/agreement.h"
#include "coordinator/core/rendezvous/barriers.h"
#include "coordinator/core/rendezvous/keys.h"
#include "proto/muster/v1/worker.pb.h"

namespace muster::core {

class Rendezvous {
 public:
  Rendezvous(JobTable& jobs, NodeTable& nodes, const SecretTable& secrets, Context& context)
      : jobs_(jobs), nodes_(nodes), secrets_(secrets), context_(context) {}

  // ---- Life cycle of a generation
  // Starts a generation that is new or was loaded from the records.
  void Begin(const Job& job);
  // The generation is stopping: aborts open barriers with `message` and cancels the phase deadline.
  void Stop(const Job& job, const std::string& message);
  // The generation has ended: drops its state.
  void End(const Job& job);

  // ---- Phases
  // Records a rank's JoinInfo; only the first one of each rank counts.
  void RecordJoin(const Job& job, uint32_t rank, const v1::JoinInfo& join);
  // Forms the world once all ranks have joined, and sends it. Returns a failure if the fingerprints
  // of the ranks differ.
  std::optional<v1::FirstFailure> FormWorld(Job& job);
  // Advances past the phases that all ranks have reached. Returns true once the job is to become
  // RUNNING.
  bool AdvancePhases(const Job& job);
  // The phase's timer has fired. Returns a failure if an awaited rank has made no progress for the
  // phase's timeout, after a last notice about the ranks without progress; the failure names the
  // rank if there is exactly one. Arms the timer again otherwise.
  std::optional<v1::FirstFailure> OnPhaseTimer(const Job& job);

  // Sends a Launch to the node if it is reachable and has live ranks.
  void SendLaunch(const Job& job, uint32_t node_rank);
  // Sends the world to the node once it is formed, once per session of the node.
  void SendWorld(const Job& job, uint32_t node_rank);
  // The node has a new session, which has not received the world.
  void OnNewSession(const Job& job, uint32_t node_rank);

  // ---- Keys and barriers
  void PutKey(const Node& node, const v1::PutKey& put);
  void GetKey(const Node& node, const v1::GetKey& get);
  void ArriveAtBarrier(const Node& node, const v1::ArriveBarrier& arrive);
  // Ranks report that they passed the barrier: all ranks may pass it and the earlier ones of its
  // group.
  void MarkPassed(const Job& job, const v1::BarrierId& barrier);
  // Adds the passed barriers to the record of a node whose rank has exited; RestorePassed reads
  // them after a restart.
  void RecordPassed(Job& job, uint32_t node_rank) const;
  void RestorePassed(const Job& job);
  // Aborts barriers that can never be passed because a rank exited before it arrived.
  void AbortHopelessBarriers(const Job& job);

  // ---- Waits
  // Replaces the waits in the job's hosted c10d store, as its node has reported them.
  void SetStoreWaits(const Job& job, const v1::StoreWaits& waits);
  // The waits of a job's ranks, for the job's view.
  std::vector<v1::Wait> Waits(const Job& job, Time now) const;
  // The waits of all active jobs, for metrics: the oldest of each job and name.
  std::vector<LiveWait> ListWaits() const;
  // Sends notices of the waits that are due to the job's nodes, and logs them.
  void OnWaitTimer(const Job& job);

 private:
  // A wait in the hosted c10d store.
  struct StoreWait {
    std::string what;
    SteadyTime since;
    std::vector<uint32_t> missing;
    std::string reason;  // what it waits for, if no rank is known to be missing
  };
  struct OpenWait {
    std::string what;
    SteadyTime since;
    uint32_t missing = 0;
    std::optional<v1::BarrierId> barrier;  // no value: the rendezvous or the communicators
    std::vector<uint32_t> named;           // the ranks to describe; empty: all that are missing
    std::optional<StoreWait> store = std::nullopt;  // replaces `barrier` and `named`
  };
  struct State {
    State(uint32_t world_size, MemoryBudget& memory, const std::string& owner)
        : keys(memory, owner), barriers(world_size), joins(world_size) {}

    KeyTable keys;
    BarrierTable barriers;
    std::vector<std::optional<v1::JoinInfo>> joins;  // by rank
    std::optional<Agreement> agreement;              // once all ranks have joined
    std::set<uint32_t> world_sent;  // node ranks whose current session has received the world
    // The phase that ranks have yet to reach, and the time since which they are awaited.
    v1::RankPhase awaited = v1::STARTED;
    SteadyTime awaited_since;
    SteadyTime noticed_until;  // notices due by this time have been sent
    std::vector<StoreWait> store_waits;
  };

  // Returns the job if its living generation is `number`, has ranks on the node and is not
  // stopping; null otherwise.
  const Job* FindOpen(const std::string& job, uint64_t number, const Node& node);
  void ArmPhase(const Job& job, v1::RankPhase awaited);
  bool IsReachable(const GenerationState& generation, uint32_t node_rank) const;
  bool HaveAllNodesReported(const GenerationState& generation) const;
  void ReleaseBarrier(const Job& job, const v1::BarrierId& barrier, const absl::Status& status);

  // ---- waits.cc
  std::vector<OpenWait> OpenWaits(const Job& job) const;
  v1::Wait DescribeWait(const Job& job, const OpenWait& open, size_t most, Time now) const;
  // Adds the missing ranks `ids` to the wait: at most `most` of them, then the number of the
  // others.
  void DescribeRanks(const Job& job, std::vector<uint32_t> ids, size_t most, Time now,
                     v1::Wait& wait) const;
  std::string DescribeRank(const Job& job, const RankState& rank, Time now) const;
  // Arms the wait timer for a wait that begins now.
  void ArmWaitTimer(const Job& job);
  // Sends a notice of the wait to the generation's nodes and logs it; returns the wait as sent.
  v1::Wait SendNotice(const Job& job, const OpenWait& open, bool timed_out);

  JobTable& jobs_;
  NodeTable& nodes_;
  const SecretTable& secrets_;
  Context& context_;
  std::map<JobId, State> states_;
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_RENDEZVOUS_RENDEZVOUS_H_
