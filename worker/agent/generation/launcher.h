// How the programs of a generation's ranks are started on this node.
#ifndef MUSTER_WORKER_AGENT_GENERATION_LAUNCHER_H_
#define MUSTER_WORKER_AGENT_GENERATION_LAUNCHER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/muster/v1/worker.pb.h"
#include "worker/agent/generation/generation_context.h"
#include "worker/shim/protocol.h"

namespace muster::agent {

// An implementation per value of `launcher` in the job's spec. Thread-compatible.
class Launcher {
 public:
  virtual ~Launcher() = default;

  // The command that the rank's shim executes to run `program`, the rank's own command line.
  virtual std::vector<std::string> CommandFor(std::vector<std::string> program) const = 0;

  // Directories that the ranks of this node create and share. The worker creates them for ranks
  // that run as another user, who may not.
  virtual std::vector<std::string> Directories() const = 0;

  // Checks that this node has the programs that the launcher needs for the rank.
  // FAILED_PRECONDITION names the missing part.
  virtual absl::Status CheckNode(const v1::RankPlacement& placement,
                                 const shim::Instructions& instructions) const = 0;
};

// The launcher of the job. The context and the launch must outlive it.
std::unique_ptr<Launcher> MakeLauncher(const GenerationContext& context, const v1::Launch& launch);

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_GENERATION_LAUNCHER_H_
