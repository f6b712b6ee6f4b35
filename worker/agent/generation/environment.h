// Builds the environment of a rank's process.
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

// Values that are the same for all ranks of this worker.
struct NodeEnvironment {
  Variables inherited;  // the worker's environment without the worker's own settings
  std::string node_name;
  std::string worker_socket;  // a gRPC target
  std::string cache_dir;
  std::vector<v1::Slot> slots;  // as reported to the coordinator
  // Address at which other nodes reach this one, and its network interface; empty if there is none.
  std::string address;
  std::string interface;
};

// Values of one rank.
struct RankEnvironment {
  std::string token;
  // For a train job: the file with the serialised launch, which a rank reads to prepare while it
  // waits for its peers.
  std::string launch_file;
  // For a command job.
  Address master;              // MASTER_ADDR and MASTER_PORT
  std::string error_file;      // TORCHELASTIC_ERROR_FILE, as PyTorch writes it
  std::string progress_file;   // for lines of `step=… loss=…`
  std::string checkpoint_dir;  // kept across the job's generations
};

// The worker's environment without the worker's settings (MUSTER_*), but with
// MUSTER_CUDA_LIBRARY_PATH, which ranks need to find NVIDIA's libraries.
Variables InheritedVariables(const char* const* environment);

// The environment as NAME=value entries. Later sources override earlier ones: inherited, defaults,
// the job's `env`, and the rank's placement, which a job cannot override. A command gets the
// variables that torchrun would set.
std::vector<std::string> RankVariables(const NodeEnvironment& node, const v1::Launch& launch,
                                       const v1::RankPlacement& placement,
                                       const RankEnvironment& rank);

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_GENERATION_ENVIRONMENT_H_
