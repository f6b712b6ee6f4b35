// Builds the instructions for a shim, and the paths in them.
#ifndef MUSTER_WORKER_AGENT_GENERATION_RANK_LAUNCH_H_
#define MUSTER_WORKER_AGENT_GENERATION_RANK_LAUNCH_H_

#include <string>
#include <vector>

#include "common/http/address.h"
#include "proto/muster/v1/worker.pb.h"
#include "worker/agent/generation/generation_context.h"
#include "worker/shim/protocol.h"

namespace muster::agent {

// `token` authenticates the rank to the worker. `master` is the rendezvous address of a command
// job. Only builds paths; does not create files.
shim::Instructions MakeInstructions(const GenerationContext& context, const v1::Launch& launch,
                                    const v1::RankPlacement& placement, const std::string& token,
                                    const Address& master);

// The rendezvous address in the instructions of a command; empty if there is none.
Address MasterIn(const shim::Instructions& instructions);

// The secrets, as NAME=value, that may be added to the instructions' environment: without those
// that the rank's placement sets, which a job cannot override.
std::vector<std::string> SecretsFor(const shim::Instructions& instructions,
                                    const std::vector<std::string>& secrets);

// Warning about limits of the spec that this node cannot enforce; empty: it enforces all.
std::string UnenforcedLimits(const GenerationContext& context, const v1::Resources& resources);

// The directory for the checkpoints of a command job on this node.
v1::CheckpointStatus CommandCheckpoint(const GenerationContext& context, const v1::Launch& launch);

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_GENERATION_RANK_LAUNCH_H_
