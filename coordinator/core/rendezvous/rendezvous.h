// How the ranks of a living generation find each other: launch, join, world, key store and
// barriers.
//
// One state per living generation, in memory only: workers report joins, keys and barriers again in
// the Hello of each session, so a coordinator that was restarted rebuilds it.
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
#include "coordinator/core/rendezvous/agreement.h"
#include "coordinator/core/rendezvous/barriers.h"
#include "coordinator/core/rendezvous/keys.h"
#include "proto/muster/v1/worker.pb.h"

namespace muster::core {

class Rendezvous {
 public:
  Rendezvous(JobTable& jobs, NodeTable& nodes, Context& context)
      : jobs_(jobs), nodes_(nodes), context_(context) {}

  // ---- A generation's life
  // The job has a new living generation, or one that was loaded from the records.
  void Begin(const Job& job);
  // The generation stops: open barriers are aborted with `message`, and phases have no deadline.
  void Stop(const Job& job, const std::string& message);
  // Nothing of the generation is left.
  void End(const Job& job);

  // ---- Phases
  // What a rank said when it joined; the first word counts.
  void RecordJoin(const Job& job, uint32_t rank, const v1::JoinInfo& join);
  // Forms the world once every rank has joined, and sends it. Returns the failure when the ranks do
  // not fit together.
  std::optional<v1::FirstFailure> FormWorld(Job& job);
  // Takes note of the phases that all ranks have reached. True once the job is to be RUNNING.
  bool AdvancePhases(const Job& job);
  // The phase's deadline has passed. The failure names the missing rank, if it is only one.
  v1::FirstFailure TimeOut(const Job& job);

  // Sends a Launch to the node.
  void SendLaunch(const Job& job, uint32_t node_rank);
  // Sends the world to the node, if there is one and its session has not had it.
  void SendWorld(const Job& job, uint32_t node_rank);
  // The node has a new session, which knows nothing of the world.
  void OnNewSession(const Job& job, uint32_t node_rank);

  // ---- Keys and barriers
  void PutKey(const Node& node, const v1::PutKey& put);
  void GetKey(const Node& node, const v1::GetKey& get);
  void ArriveAtBarrier(const Node& node, const v1::ArriveBarrier& arrive);
  // Ranks report that they passed the barrier: everyone may pass it and those before it.
  void MarkPassed(const Job& job, const v1::BarrierId& barrier);
  // Aborts barriers that can never be passed because a rank ended before it arrived.
  void AbortHopelessBarriers(const Job& job);

  // ---- Waits
  // What the ranks of a job wait for, as its view shows it.
  std::vector<v1::Wait> Waits(const Job& job, Time now) const;
  std::vector<LiveWait> ListWaits() const;
  // Notifies nodes and the log of the waits that are due.
  void OnWaitTimer(const Job& job);

 private:
  struct State {
    explicit State(uint32_t world_size) : barriers(world_size), joins(world_size) {}

    KeyTable keys;
    BarrierTable barriers;
    std::vector<std::optional<v1::JoinInfo>> joins;  // by rank
    std::optional<Agreement> agreement;              // once every rank has joined
    std::set<uint32_t> world_sent;  // node ranks whose present session has had the world
    // The phase that is under way, and since when.
    v1::RankPhase awaited = v1::STARTED;
    SteadyTime awaited_since;
    SteadyTime noticed_until;  // waits due by then have been announced
  };
  struct OpenWait {
    std::string what;
    SteadyTime since;
    uint32_t missing = 0;
    std::optional<v1::BarrierId> barrier;  // none: the rendezvous or the set-up of communicators
  };

  // The job whose living generation `number` has ranks on the node and is not stopping; null
  // otherwise.
  const Job* FindOpen(const std::string& job, uint64_t number, const Node& node);
  void ArmPhase(const Job& job, v1::RankPhase awaited);
  bool IsReachable(const GenerationState& generation, uint32_t node_rank) const;
  void ReleaseBarrier(const Job& job, const v1::BarrierId& barrier, const absl::Status& status);

  // ---- waits.cc
  std::vector<OpenWait> OpenWaits(const Job& job) const;
  v1::Wait DescribeWait(const Job& job, const OpenWait& open, size_t most, Time now) const;
  // Adds `ids`, which are waited for, to the wait: `most` of them, then the number of the others.
  void DescribeRanks(const Job& job, std::vector<uint32_t> ids, size_t most, Time now,
                     v1::Wait& wait) const;
  std::string DescribeRank(const Job& job, const RankState& rank, Time now) const;
  // Makes the wait timer fire for a wait that begins now.
  void ArmWaitTimer(const Job& job);
  // Notifies the nodes of the generation and the log; returns what they were told.
  v1::Wait SendNotice(const Job& job, const OpenWait& open, bool timed_out);

  JobTable& jobs_;
  NodeTable& nodes_;
  Context& context_;
  std::map<JobId, State> states_;
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_RENDEZVOUS_RENDEZVOUS_H_
