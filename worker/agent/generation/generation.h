// One generation of one job on this node: its ranks, their calls, and their c10d store.
#ifndef MUSTER_WORKER_AGENT_GENERATION_GENERATION_H_
#define MUSTER_WORKER_AGENT_GENERATION_GENERATION_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/muster/v1/rank.pb.h"
#include "proto/muster/v1/worker.pb.h"
#include "worker/agent/generation/generation_context.h"
#include "worker/agent/generation/ranks/rank.h"
#include "worker/agent/generation/report_queue.h"
#include "worker/agent/generation/secrets.h"
#include "worker/agent/generation/startup.h"
#include "worker/agent/generation/store/job_store.h"
#include "worker/agent/generation/store/master_endpoint.h"
#include "worker/agent/rank/directives.h"
#include "worker/agent/rank/rendezvous.h"

namespace muster::agent {

// Must be used on the loop's thread.
//
//   waiting ──Start──> live ──every rank EXITED──> over
//      └──────────Stop──────────────────────────────^
//
// Ranks whose processes outlive SIGKILL keep a generation from being over, but nothing waits for
// them: it is settled.
//
// The ranks of a command job start once their master endpoint is known: the worker of node rank 0
// reserves a port and publishes it under a key of the generation; the other workers wait for it.
//
// With a hosted c10d store, that worker also starts the store, before it publishes the endpoint.
// The store ends with the ranks of all nodes: the generation may be over here and still have its
// store.
//
// State that a later worker needs (the launch, the world, each rank's report) is written to disk
// before it is acted upon or acknowledged. A rank's exit is in its shim's record.
class Generation {
 public:
  // `on_settled` is called on the loop, from within a method of this class, whenever the generation
  // may have become settled or over: it must not destroy this object.
  Generation(const GenerationContext& context, v1::Launch launch, std::function<void()> on_settled);
  Generation(const Generation&) = delete;
  Generation& operator=(const Generation&) = delete;

  const std::string& job_id() const { return launch_.job_id(); }
  uint64_t number() const { return launch_.generation(); }
  const v1::Launch& launch() const { return launch_; }
  bool started() const { return started_; }
  bool over() const;
  // Every rank has exited or is unkillable, and the hosted store has ended.
  bool settled() const;
  // Null if the rank is not on this node.
  Rank* FindRank(uint32_t rank);
  // Whether the rank is on this node and has not exited.
  bool RankIsLive(uint32_t rank) const;
  // Slots of running ranks.
  std::vector<uint32_t> SlotsInUse() const;
  // The full state, for a Hello.
  v1::GenerationReport Inventory();
  // Resends the changes since the newest Hello, whose session has just been opened.
  void ResendChanged();

  // Starts the ranks. A rank that cannot be started is reported as EXITED with its failure.
  void Start();
  // Adopts the ranks that an earlier worker started.
  void Adopt();
  // Sends the directive to the ranks, then stops their shims. Idempotent.
  void Stop(const v1::StopGeneration& stop);
  // The same for a stop that the coordinator did not request, so that it may not end the generation
  // afterwards.
  void StopByWorker(const v1::StopGeneration& stop);
  // The coordinator has ended the generation, which must be over: stops the hosted store. Returns
  // whether nothing was left; otherwise on_settled follows.
  bool Close() { return store_.Stop(); }
  // Replaces the lease deadline of the ranks and the store; see worker/shim/clock.h.
  void SetLeaseDeadline(int64_t boot_ms);
  // Reads what commands and the hosted store report. Call it periodically.
  void Tick();
  // Inspects the running ranks, and sends each result to the coordinator.
  void Inspect();

  void OnWorld(const v1::World& world);
  // Writes the notice to the log of each live rank, and stores it for the error of a call that
  // times out.
  void OnWaitNotice(const v1::WaitNotice& notice);

  // ---- A rank's calls; its identity has been checked. Each `done` is called exactly once.
  void Join(const v1::JoinRequest& request, CallId id,
            std::function<void(absl::StatusOr<v1::JoinResponse>)> done);
  // The caller has cancelled.
  void CancelCall(CallId id);
  Rendezvous& rendezvous() { return rendezvous_; }
  Directives& directives() { return directives_; }

 private:
  std::string File(const char* name) const;
  Rendezvous::Outside RendezvousOutside();
  JobStore::Events StoreEvents();
  void SendReports(const std::set<uint32_t>& ranks);
  void FinishIfOver();

  const GenerationContext& context_;
  SecretValues secrets_;     // sent with the launch; empty once the generation has been started
  const v1::Launch launch_;  // without secrets, because it is stored
  const std::function<void()> on_settled_;
  const Rank::Events rank_events_;
  ReportQueue reports_;
  std::map<uint32_t, Rank> ranks_;
  Rendezvous rendezvous_;
  Directives directives_;
  MasterPort master_;
  JobStore store_;
  std::unique_ptr<Startup> startup_;  // null: not started by this worker
  std::optional<v1::World> world_;
  bool started_ = false;
  bool finished_ = false;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_GENERATION_GENERATION_H_
