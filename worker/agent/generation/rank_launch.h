// Builds the instructions for a shim: the command with its placeholders, and the paths.
#ifndef MUSTER_WORKER_AGENT_GENERATION_RANK_LAUNCH_H_
#define MUSTER_WORKER_AGENT_GENERATION_RANK_LAUNCH_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/http/address.h"
#include "proto/muster/v1/worker.pb.h"
#include "worker/agent/generation/generation_context.h"
#include "worker/agent/generation/ranks/shim_line.h"
#include "worker/agent/job_user.h"
#include "worker/shim/protocol.h"

namespace muster::agent {

// Placeholders in the arguments of commands.
struct Placeholders {
  uint32_t rank = 0;
  uint32_t local_rank = 0;
  uint32_t node_rank = 0;
  std::string node;                                    // name
  std::optional<uint32_t> array_index = std::nullopt;  // of a task of an array
};

// `argument` with {rank}, {local_rank}, {node_rank}, {node} and, in a task of an array,
// {array_index} replaced. Unchanged: other braces, ${rank}, which a shell expands, and arguments
// with white space, which are usually programs.
std::string ReplacePlaceholders(absl::string_view argument, const Placeholders& values);

// The launch among the files of a rank's own user, see DataDirectory::UserFiles.
inline constexpr char kUserLaunchFile[] = "/launch.pb";

// `token` authenticates the rank to the worker. `master` is the rendezvous address of a command
// job. `user`: of the rank, if it is not the worker's. Only builds paths; does not create files.
shim::Instructions MakeInstructions(const GenerationContext& context, const v1::Launch& launch,
                                    const v1::RankPlacement& placement, const std::string& token,
                                    const Address& master,
                                    const std::optional<JobUser>& user = std::nullopt);

// The rendezvous address in the instructions of a command; empty if there is none.
Address MasterIn(const shim::Instructions& instructions);

// The secrets, as NAME=value, that may be added to the instructions' environment: without those
// that the rank's placement sets, which a job cannot override.
std::vector<std::string> SecretsFor(const shim::Instructions& instructions,
                                    const std::vector<std::string>& secrets);

// FAILED_PRECONDITION if the worker could not find what a killed shim leaves behind: the
// instructions have neither a control group nor a mark.
absl::Status CheckTracked(const GenerationContext& context, const shim::Instructions& instructions);

// Extends the lease of what this shim runs with the acknowledgements that arrive, if the job has a
// lease and does not continue when its node is cut off.
void KeepLease(const GenerationContext& context, const v1::Launch& launch,
               const std::shared_ptr<ShimLine>& line);

// Warning about limits of the spec that this node cannot enforce; empty: it enforces all.
std::string UnenforcedLimits(const GenerationContext& context, const v1::Resources& resources);

// The directory for the checkpoints of a command job on this node.
v1::CheckpointStatus CommandCheckpoint(const GenerationContext& context, const v1::Launch& launch);

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_GENERATION_RANK_LAUNCH_H_
