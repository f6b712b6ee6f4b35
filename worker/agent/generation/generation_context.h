// What the generations of a worker have in common.
#ifndef MUSTER_WORKER_AGENT_GENERATION_GENERATION_CONTEXT_H_
#define MUSTER_WORKER_AGENT_GENERATION_GENERATION_CONTEXT_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "proto/muster/v1/worker.pb.h"
#include "worker/agent/data_directory.h"
#include "worker/agent/event_loop.h"
#include "worker/agent/generation/devices.h"
#include "worker/agent/generation/environment.h"
#include "worker/agent/rank/progress_board.h"

namespace muster::agent {

// Outlives them all; on the loop's thread only.
struct GenerationContext {
  EventLoop* loop = nullptr;
  const DataDirectory* directory = nullptr;
  Devices* devices = nullptr;
  ProgressBoard* progress = nullptr;
  NodeEnvironment environment;
  std::string network;  // NetworkIdentity
  // Below it each rank gets a control group of its own; empty: none can be had.
  std::string cgroup;
  // The CPUs that belong to each slot; empty: ranks run wherever the worker may.
  std::vector<std::vector<int>> cpus_of_slots;
  std::string shim_binary;
  std::string rank_binary;
  // Dropped while there is no session: the next Hello tells it all again.
  std::function<void(v1::WorkerMessage)> send;
  // Nothing of the rank is left, and its logs are complete.
  std::function<void(const std::string& job_id, uint64_t generation, uint32_t rank)> on_rank_exited;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_GENERATION_GENERATION_CONTEXT_H_
