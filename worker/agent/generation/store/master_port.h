// The port of a command job's master endpoint: reserved on node rank 0, and awaited on other nodes.
#ifndef MUSTER_WORKER_AGENT_GENERATION_STORE_MASTER_PORT_H_
#define MUSTER_WORKER_AGENT_GENERATION_STORE_MASTER_PORT_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/network/held_port.h"
#include "proto/muster/v1/worker.pb.h"
#include "worker/agent/generation/generation_context.h"
#include "worker/agent/generation/store/master_endpoint.h"
#include "worker/agent/rank/rendezvous.h"

namespace muster::agent {

// The endpoint is published under a key of the generation. Must be used on the loop's thread.
class MasterPort {
 public:
  // Context, launch and rendezvous must outlive the port.
  MasterPort(const GenerationContext& context, const v1::Launch& launch, Rendezvous& rendezvous)
      : context_(context), launch_(launch), rendezvous_(rendezvous) {}

  // ---- On node rank 0.
  // Reserves a port, and records it for a later worker. Errors: of the system.
  absl::StatusOr<MasterEndpoint> Hold();
  // Reserves and publishes the port of an earlier worker again.
  void HoldAgain();
  void Publish(const MasterEndpoint& endpoint);
  void Release() { port_.reset(); }

  // ---- On other nodes.
  // Calls `done` once the endpoint is published. Errors: those of the rendezvous, and
  // FAILED_PRECONDITION if the ranks of this node cannot reach it.
  void Await(std::function<void(const absl::StatusOr<MasterEndpoint>&)> done);

 private:
  std::string File() const;

  const GenerationContext& context_;
  const v1::Launch& launch_;
  Rendezvous& rendezvous_;
  std::unique_ptr<HeldPort> port_;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_GENERATION_STORE_MASTER_PORT_H_
