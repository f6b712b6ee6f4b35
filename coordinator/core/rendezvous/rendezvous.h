// Brings the ranks of a living generation together: join, world, key store and barriers.
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
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "coordinator/core/context.h"
#include "coordinator/core/jobs/job_table.h"
#include "coordinator/core/jobs/retention.h"
#include "coordinator/core/nodes/node_table.h"
#include "coordinator/core/rendezvous/waits.h"
#include "proto/muster/v1/worker.pb.h"

namespace muster::core {

class Rendezvous {
 public:
  Rendezvous(JobTable& jobs, Eviction& eviction, NodeTable& nodes, Context& context)
      : jobs_(jobs), eviction_(eviction), nodes_(nodes), context_(context) {}

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
  // The ranks of a STARTING job have the whole time of the phase again: some could not start
  // before.
  void RestartPhase(const Job& job);

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
  // Returns the job if its living generation is `number`, has ranks on the node and is not
  // stopping; null otherwise.
  const Job* FindOpen(const std::string& job, uint64_t number, const Node& node);
  void ArmPhase(const Job& job, v1::RankPhase awaited);
  bool IsReachable(const GenerationState& generation, uint32_t node_rank) const;
  void ReleaseBarrier(const Job& job, const v1::BarrierId& barrier, const absl::Status& status);

  JobTable& jobs_;
  Eviction& eviction_;
  NodeTable& nodes_;
  Context& context_;
  std::map<JobId, RendezvousState> states_;
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_RENDEZVOUS_RENDEZVOUS_H_
