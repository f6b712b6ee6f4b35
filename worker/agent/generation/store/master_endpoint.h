// The rendezvous address of a command job's ranks (MASTER_ADDR and MASTER_PORT): reserved on node
// rank 0, and awaited on the other nodes.
#ifndef MUSTER_WORKER_AGENT_GENERATION_STORE_MASTER_ENDPOINT_H_
#define MUSTER_WORKER_AGENT_GENERATION_STORE_MASTER_ENDPOINT_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/http/address.h"
#include "common/network/held_port.h"
#include "proto/muster/v1/worker.pb.h"
#include "worker/agent/generation/generation_context.h"
#include "worker/agent/rank/rendezvous.h"

namespace muster::agent {

// The key of a generation's store under which the worker of node rank 0 publishes the endpoint.
inline constexpr char kMasterKey[] = "master";

struct MasterEndpoint {
  Address address;      // address of node rank 0 and the port reserved by its worker
  std::string network;  // NetworkIdentity of node rank 0
};

std::string EncodeMasterEndpoint(const MasterEndpoint& endpoint);
// INVALID_ARGUMENT.
absl::StatusOr<MasterEndpoint> DecodeMasterEndpoint(absl::string_view text);

// Whether ranks on the node of `own_address` can reach the endpoint. FAILED_PRECONDITION, with a
// remedy, if one of the nodes is registered with a loopback address and they are different
// machines.
absl::Status CheckReachable(const MasterEndpoint& endpoint, const std::string& own_address,
                            const std::string& own_network);

// The endpoint is published under a key of the generation. Must be used on the loop's thread.
class MasterPort {
 public:
  // Context, launch and rendezvous must outlive the port.
  MasterPort(const GenerationContext& context, const v1::Launch& launch, Rendezvous& rendezvous)
      : context_(context), launch_(launch), rendezvous_(rendezvous) {}

  // ---- On node rank 0.
  // Reserves a port, and records it for a later worker. Returns errors of errno.
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

#endif  // MUSTER_WORKER_AGENT_GENERATION_STORE_MASTER_ENDPOINT_H_
