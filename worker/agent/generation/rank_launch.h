// What a shim is told to start.
#ifndef MUSTER_WORKER_AGENT_GENERATION_RANK_LAUNCH_H_
#define MUSTER_WORKER_AGENT_GENERATION_RANK_LAUNCH_H_

#include <string>

#include "common/http/address.h"
#include "proto/muster/v1/worker.pb.h"
#include "worker/agent/generation/generation_context.h"
#include "worker/shim/protocol.h"

namespace muster::agent {

// `token` proves to the worker who the rank is. `master` is where the ranks of a command job meet.
// Names files and directories, and makes none.
shim::Instructions MakeInstructions(const GenerationContext& context, const v1::Launch& launch,
                                    const v1::RankPlacement& placement, const std::string& token,
                                    const Address& master);

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_GENERATION_RANK_LAUNCH_H_
