// Context shared by all generations of a worker.
#ifndef MUSTER_WORKER_AGENT_GENERATION_GENERATION_CONTEXT_H_
#define MUSTER_WORKER_AGENT_GENERATION_GENERATION_CONTEXT_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/muster/v1/worker.pb.h"
#include "worker/agent/event_loop.h"
#include "worker/agent/generation/devices.h"
#include "worker/agent/generation/environment.h"
#include "worker/agent/job_user.h"
#include "worker/agent/lease/lease_lines.h"
#include "worker/agent/rank/progress_board.h"
#include "worker/agent/storage/data_directory.h"

namespace muster::agent {

// Must outlive all generations and be used on the loop's thread.
struct GenerationContext {
  EventLoop* loop = nullptr;
  const DataDirectory* directory = nullptr;
  Devices* devices = nullptr;
  ProgressBoard* progress = nullptr;
  NodeEnvironment environment;
  JobUsers job_users;           // Unix users that run the ranks
  std::string network;          // NetworkIdentity
  std::string secrets_dir;      // folder with files of secrets; empty: none
  uint64_t rank_log_bytes = 0;  // limit of each log of a rank; 0: none
  // Parent of the ranks' control groups; empty if groups cannot be created.
  std::string cgroup;
  // Why ranks' memory and processes cannot be limited; empty: they can.
  std::string limits_unavailable;
  // CPUs by slot; empty: ranks run on all CPUs of the worker.
  std::vector<std::vector<int>> cpus_of_slots;
  std::string shim_binary;
  std::string rank_binary;
  std::string store_binary;
  std::string mpi_binary;
  // Places the files of a spec in the directories, which belong to the user, if there is one; then
  // calls `done` on the loop.
  std::function<void(const v1::JobSpec& spec, std::vector<std::string> directories,
                     const std::optional<JobUser>& user,
                     std::function<void(const absl::Status&)> done)>
      place_files;
  // Instructions::lease_deadline_ms of a rank that is about to be started.
  std::function<int64_t(const v1::Launch& launch)> lease_deadline_ms;
  // Extends leases. Thread-safe.
  LeaseLines* lease_lines = nullptr;
  // Messages are dropped while there is no session: the next Hello contains the full state.
  std::function<void(v1::WorkerMessage)> send;
  // No process of the rank is left, and its logs are complete.
  std::function<void(const std::string& job_id, uint64_t generation, uint32_t rank)> on_rank_exited;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_GENERATION_GENERATION_CONTEXT_H_
