// The environment that a rank's process starts with.
#ifndef MUSTER_WORKER_AGENT_GENERATION_ENVIRONMENT_H_
#define MUSTER_WORKER_AGENT_GENERATION_ENVIRONMENT_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/http/address.h"
#include "proto/muster/v1/node.pb.h"
#include "proto/muster/v1/worker.pb.h"

namespace muster::agent {

using Variables = std::map<std::string, std::string>;

// What is the same for every rank of this worker.
struct NodeEnvironment {
  Variables inherited;  // the worker's own, less what is meant for the worker alone
  std::string node_name;
  std::string worker_socket;  // a gRPC target
  std::string cache_dir;
  std::vector<v1::Slot> slots;  // as the worker offers them
  // Where other nodes reach this one, and the interface that carries it; empty when there is none.
  std::string address;
  std::string interface;
};

// What is one rank's own.
struct RankEnvironment {
  std::string token;
  // Of a train job: the serialised launch, by which a rank prepares itself while it waits for its
  // peers.
  std::string launch_file;
  // Of a command job.
  Address master;              // where the job's ranks meet
  std::string error_file;      // for the program's account of its failure, as PyTorch writes it
  std::string progress_file;   // for lines of `step=… loss=…`
  std::string checkpoint_dir;  // outlives the job's generations
};

// The worker's environment without the settings of the worker itself (MUSTER_*), but with
// MUSTER_CUDA_LIBRARY_PATH, by which ranks find NVIDIA's libraries on its machine.
Variables InheritedVariables(const char* const* environment);

// Later ones win: inherited, defaults, the job's `env`, and last the place of the rank in its
// world, which a job cannot talk its way out of. As NAME=value. A command gets what torchrun would
// have given it.
std::vector<std::string> RankVariables(const NodeEnvironment& node, const v1::Launch& launch,
                                       const v1::RankPlacement& placement,
                                       const RankEnvironment& rank);

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_GENERATION_ENVIRONMENT_H_
