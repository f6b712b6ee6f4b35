// The c10d store of a command job, from the side of one node: hosted on node rank 0, and elsewhere
// a connection over which it learns the ranks of this node.
#ifndef MUSTER_WORKER_AGENT_GENERATION_STORE_JOB_STORE_H_
#define MUSTER_WORKER_AGENT_GENERATION_STORE_JOB_STORE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "common/http/address.h"
#include "proto/muster/v1/worker.pb.h"
#include "worker/agent/generation/generation_context.h"
#include "worker/agent/generation/store/hosted_store.h"
#include "worker/agent/generation/store/rank_locator.h"
#include "worker/agent/job_user.h"

namespace muster::agent {

// Without effect for jobs that do not request a store. The hosted store ends with the ranks of all
// nodes: it may outlive those of this node. Must be used on the loop's thread.
class JobStore {
 public:
  // Called on the loop.
  struct Events {
    // Once after Start: the store listens, or could not be started.
    std::function<void(const absl::Status& status)> on_ready;
    // A problem of the store or, with `rank`, of this rank of this node. May be repeated.
    std::function<void(std::optional<uint32_t> rank, const std::string& problem)> on_problem;
    // The hosted store has ended.
    std::function<void()> on_ended;
    // Whether all ranks of this node have exited.
    std::function<bool()> is_over;
  };

  // Context and launch must outlive the store.
  JobStore(const GenerationContext& context, const v1::Launch& launch, Events events)
      : context_(context), launch_(launch), events_(std::move(events)) {}

  // Starts the store on node rank 0, at an endpoint whose port this worker holds. Errors: those of
  // HostedStore::Start; then nothing is called.
  absl::Status Start(const Address& endpoint, const std::optional<JobUser>& user);
  // Adopts the store that an earlier worker started, if any.
  void Adopt();
  // On other nodes: connects to the store at the endpoint.
  void Connect(const Address& endpoint);
  // Sends the reports of the hosted store, and keeps the connection to that of another node. Call
  // it periodically.
  void Tick();

  // Whether the hosted store runs.
  bool running() const { return hosted_ != nullptr && hosted_->running(); }
  // Replaces the deadline of the lease while ranks of this node run.
  void SetLeaseDeadline(int64_t boot_ms);
  // The waits in the hosted store; nothing if there is none.
  std::optional<v1::StoreWaits> Waits() const;
  // Sends the waits to the coordinator.
  void SendWaits() const;

  // Once all ranks of this node have exited: stops the store unless the ranks of other nodes may
  // still need it. The coordinator ends the generation once they have exited, too.
  void EndIfOver();
  // The coordinator may not end the generation: EndIfOver need not wait for other nodes.
  void EndByItself() { ends_by_itself_ = true; }
  // Stops the store. Returns whether none was running; otherwise on_ended follows.
  bool Stop();

 private:
  HostedStore::Events HostedEvents();
  void Report();

  const GenerationContext& context_;
  const v1::Launch& launch_;
  const Events events_;
  std::unique_ptr<HostedStore> hosted_;   // null: none has been started
  std::unique_ptr<RankLocator> locator_;  // while the store of another node is in use
  bool ends_by_itself_ = false;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_GENERATION_STORE_JOB_STORE_H_
