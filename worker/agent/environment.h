// The environment that a rank's process starts with.
#ifndef MUSTER_WORKER_AGENT_ENVIRONMENT_H_
#define MUSTER_WORKER_AGENT_ENVIRONMENT_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "proto/muster/v1/worker.pb.h"

namespace muster::agent {

using Variables = std::map<std::string, std::string>;

// What is the same for every rank of this worker.
struct NodeEnvironment {
  Variables inherited;  // the worker's own, less what is meant for the worker alone
  std::string node_name;
  std::string worker_socket;  // a gRPC target
  std::string cache_dir;
};

// The worker's environment without the settings of the worker itself (MUSTER_*).
Variables InheritedVariables(const char* const* environment);

// Later ones win: inherited, defaults, the job's `env`, and last the place of the rank in its
// world, which a job cannot talk its way out of. As NAME=value.
//
// `launch_file` holds the serialised launch: a rank of a train job prepares itself by it while it
// waits for its peers.
std::vector<std::string> RankVariables(const NodeEnvironment& node, const v1::Launch& launch,
                                       const v1::RankPlacement& placement, const std::string& token,
                                       const std::string& launch_file);

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_ENVIRONMENT_H_
