// One generation of one job on this node: its ranks, their calls, and their c10d store.
#ifndef MUSTER_WORKER_AGENT_GENERATION_GENERATION_H_
#define MUSTER_WORKER_AGENT_GENERATION_GENERATION_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/muster/v1/rank.pb.h"
#include "proto/muster/v1/worker.pb.h"
#include "worker/agent/generation/generation_context.h"
#include "worker/agent/generation/rank_set.h"
#include "worker/agent/generation/secrets.h"
#include "worker/agent/generation/startup.h"
#include "worker/agent/generation/store/job_store.h"
#include "worker/agent/generation/store/master_endpoint.h"
#include "worker/agent/rank/directives.h"
#include "worker/agent/rank/rendezvous.h"

namespace muster::agent {

// The calls of a generation's ranks on this node, and what they wait for. Must be used on the
// loop's thread.
class RankCalls {
 public:
  // Context, launch and ranks must outlive the calls.
  RankCalls(const GenerationContext& context, const v1::Launch& launch, RankSet& ranks);

  Rendezvous& rendezvous() { return rendezvous_; }
  Directives& directives() { return directives_; }
  // Restores what an earlier worker stored. Call it before anything else.
  void Restore();

  void OnWorld(const v1::World& world);
  // Writes the notice to the log of each live rank, and stores it for the error of a call that
  // times out.
  void OnWaitNotice(const v1::WaitNotice& notice);

  // Directs the ranks to stop, and ends their other calls. Returns false if they have already been
  // sent the same directive.
  bool Stop(const v1::StopGeneration& stop);
  // The generation is over: ends all calls.
  void End();

  // ---- A rank's calls; its identity has been checked. Each `done` is called exactly once.
  void Join(const v1::JoinRequest& request, CallId id,
            std::function<void(absl::StatusOr<v1::JoinResponse>)> done);
  // The caller has cancelled.
  void Cancel(CallId id);

 private:
  std::string File(const char* name) const;
  Rendezvous::Outside MakeOutside();

  const GenerationContext& context_;
  const v1::Launch& launch_;
  RankSet& ranks_;
  Rendezvous rendezvous_;
  Directives directives_;
  std::optional<v1::World> world_;
};

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
  // `secrets` were sent with the launch, which is stored without them. `on_settled` is called on
  // the loop, from within a method of this class, whenever the generation may have become settled
  // or over: it must not destroy this object.
  Generation(const GenerationContext& context, v1::Launch launch, SecretValues secrets,
             std::function<void()> on_settled);

  const std::string& job_id() const { return launch_.job_id(); }
  uint64_t number() const { return launch_.generation(); }
  const v1::Launch& launch() const { return launch_; }
  RankSet& ranks() { return ranks_; }
  RankCalls& calls() { return calls_; }
  bool started() const { return started_; }
  bool over() const { return ranks_.over(); }
  // Every rank has exited or is unkillable, and the hosted store has ended.
  bool settled() const { return !store_.running() && ranks_.settled(); }
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
  // afterwards. Without `grace`, the job's grace period applies.
  void StopByWorker(absl::string_view reason, absl::string_view message,
                    std::optional<absl::Duration> grace = std::nullopt, bool abort = false);
  // The coordinator has ended the generation, which must be over: stops the hosted store. Returns
  // whether nothing was left; otherwise on_settled follows.
  bool Close() { return store_.Stop(); }
  // Replaces the lease deadline of the ranks and the store; see worker/shim/clock.h.
  void SetLeaseDeadline(int64_t boot_ms);
  // Reads what commands and the hosted store report. Call it periodically.
  void Tick();

 private:
  void FinishIfOver();

  const v1::Launch launch_;
  const std::function<void()> on_settled_;
  RankSet ranks_;
  RankCalls calls_;
  MasterPort master_;
  JobStore store_;
  Startup startup_;
  bool started_ = false;
  bool finished_ = false;
};

using Generations = std::map<std::pair<std::string, uint64_t>, std::unique_ptr<Generation>>;

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_GENERATION_GENERATION_H_
