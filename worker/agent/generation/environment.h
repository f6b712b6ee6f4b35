// Builds the environment of a rank's process.
#ifndef MUSTER_WORKER_AGENT_GENERATION_ENVIRONMENT_H_
#define MUSTER_WORKER_AGENT_GENERATION_ENVIRONMENT_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/http/address.h"
#include "proto/muster/v1/job.pb.h"
#include "proto/muster/v1/node.pb.h"
#include "proto/muster/v1/worker.pb.h"
#include "spec/hosted_store.h"
#include "worker/agent/job_user.h"

namespace muster::agent {

using Variables = std::map<std::string, std::string>;

// A variable that RankVariables sets for a rank of a command job.
struct CommandVariable {
  const char* name;
  // Whether the inherited environment and the job's `env` override it.
  bool is_default;
  const char* meaning;  // for docs/reference/environment.md
};

inline constexpr CommandVariable kCommandVariables[] = {
    {"RANK", false, "Rank, from 0 to WORLD_SIZE - 1."},
    {"WORLD_SIZE", false, "Number of ranks of the job."},
    {"LOCAL_RANK", false, "Index of the rank on its node, from 0."},
    {"LOCAL_WORLD_SIZE", false, "Number of the job's ranks on this node."},
    {"NODE_RANK", false, "Index of the node among the job's nodes, from 0."},
    {"GROUP_RANK", false, "As NODE_RANK."},
    {"GROUP_WORLD_SIZE", false, "Number of the job's nodes."},
    {"ROLE_NAME", false, "`default`."},
    {"ROLE_RANK", false, "As RANK."},
    {"ROLE_WORLD_SIZE", false, "As WORLD_SIZE."},
    {"MASTER_ADDR", false, "Address of rank 0's node, at which the other ranks connect."},
    {"MASTER_PORT", false, "Port on which rank 0 must listen; reserved by the worker."},
    {"TORCHELASTIC_RUN_ID", false, "Id of the job."},
    {"TORCHELASTIC_RESTART_COUNT", false, "Number of restarts so far."},
    {"TORCHELASTIC_MAX_RESTARTS", false, "`restart.max` of the spec."},
    {"TORCHELASTIC_ERROR_FILE", false,
     "File to which PyTorch's `@record` writes an exception; its message becomes that of the "
     "failure."},
    {"TORCHELASTIC_USE_AGENT_STORE", false,
     "`True` with a hosted store: all ranks are its clients. Otherwise `False`: rank 0 serves the "
     "store."},
    {spec::kHostedStoreVariable, false,
     "`1` if the worker of rank 0's node serves PyTorch's store at MASTER_ADDR:MASTER_PORT, which "
     "the job's `env` requests with the same value; otherwise `0`."},
    {"CUDA_VISIBLE_DEVICES", false, "UUIDs of the rank's GPUs; empty on CPU slots."},
    {"NCCL_HOSTID", true,
     "Id unique to the rank, so that NCCL accepts ranks that share a GPU. Set only with "
     "`resources.share_device`."},
    {"GLOO_SOCKET_IFNAME", true, "Network interface of the node's address, if known."},
    {"NCCL_SOCKET_IFNAME", true, "As GLOO_SOCKET_IFNAME."},
    {"OMP_NUM_THREADS", true, "`resources.threads_per_rank` of the spec."},
    {"PYTHONFAULTHANDLER", true,
     "`1`, so that Python prints its stacks when it is stopped with SIGABRT because it hangs."},
    {"PYTHONUNBUFFERED", true, "`1`, so that output appears in the logs at once."},
    {"PWD", false, "Working directory of the rank."},
    {"MUSTER_JOB_ID", false, "Id of the job."},
    {"MUSTER_GENERATION", false, "Generation of the job, from 1; each restart starts a new one."},
    {"MUSTER_NODE_NAME", false, "Name of the node."},
    {"MUSTER_ARRAY_ID", false,
     "Id of the array that the job is a task of. Only in tasks of arrays."},
    {"MUSTER_ARRAY_INDEX", false, "Index of the task, from 0. Only in tasks of arrays."},
    {"MUSTER_ARRAY_COUNT", false, "Number of tasks of the array. Only in tasks of arrays."},
    {"MUSTER_CHECKPOINT_DIR", false,
     "Directory of the job, kept across its generations; see MUSTER_CHECKPOINT_SHARED."},
    {"MUSTER_CHECKPOINT_SHARED", false,
     "`1` if MUSTER_CHECKPOINT_DIR is the same directory on all nodes, `0` if each node has its "
     "own."},
    {"MUSTER_PROGRESS", false,
     "File to which the rank may append its progress, as lines of `step=12 loss=0.5` or "
     "`{\"step\": 12, \"loss\": 0.5}`."},
    {"MUSTER_STOP_SIGNAL", false,
     "Signal that asks the rank to end: `stop_signal` of the spec, such as SIGTERM."},
    {"MUSTER_GRACE_SECONDS", false,
     "Time between MUSTER_STOP_SIGNAL and SIGKILL when the rank is stopped."},
    {"MUSTER_CACHE_DIR", false,
     "Directory of the worker for caches shared by all jobs, or, with `--job-user`, by the jobs of "
     "one user."},
    {"MUSTER_WORKER_SOCKET", false, "gRPC target of the worker, for Muster's own programs."},
    {"MUSTER_RANK_TOKEN", false,
     "Credential of the rank for MUSTER_WORKER_SOCKET; keep it secret."},
};

// A variable of the worker's environment that its ranks inherit by default.
struct InheritedVariable {
  const char* name;     // may end with *, for all names with that prefix
  const char* meaning;  // for docs/reference/environment.md
};

inline constexpr InheritedVariable kInheritedVariables[] = {
    {"PATH", "Where programs are searched."},
    {"HOME", "Home directory of the worker's user, or of that of `--job-user`."},
    {"USER", "Name of the worker's user, or of that of `--job-user`."},
    {"LOGNAME", "As USER."},
    {"SHELL", "Shell of the worker's user, or of that of `--job-user`."},
    {"LANG", "Locale."},
    {"LANGUAGE", "Languages of messages."},
    {"LC_*", "Parts of the locale."},
    {"TZ", "Time zone."},
    {"TMPDIR", "Directory for temporary files."},
    {"LD_LIBRARY_PATH", "Where libraries are searched, such as those of CUDA."},
    {"CUDA_*", "Settings of CUDA, such as CUDA_HOME and CUDA_DEVICE_ORDER."},
    {"NVIDIA_*", "Settings of NVIDIA's driver and container tools."},
    {"NCCL_*", "Settings of NCCL for this node, such as NCCL_IB_HCA."},
    {"GLOO_*", "Settings of Gloo for this node, such as GLOO_SOCKET_IFNAME."},
    {"UCX_*", "Settings of UCX, which NCCL and MPI may use between nodes."},
    {"FI_*", "Settings of libfabric, which NCCL may use between nodes."},
    {"MUSTER_CUDA_LIBRARY_PATH", "Where NVIDIA's libraries are searched first."},
};

enum class Inherit {
  kDefault,  // kInheritedVariables
  kAll,      // the whole environment, without the worker's own settings and OLDPWD
};

// Values that are the same for all ranks of this worker.
struct NodeEnvironment {
  Variables inherited;  // from the worker's environment
  std::string node_name;
  std::string worker_socket;  // a gRPC target
  std::string cache_dir;
  std::string memory_dir;       // of all jobs, see memory_directory.h; empty: none
  std::vector<v1::Slot> slots;  // as reported to the coordinator
  // Address at which other nodes reach this one, and its network interface; empty if there is none.
  std::string address;
  std::string interface;
};

// Values of one rank.
struct RankEnvironment {
  std::optional<JobUser> user;  // if it is not the worker's
  std::string token;
  std::string workdir;
  v1::CheckpointStatus checkpoint;  // dir and shared
  // For a train job: the file with the serialised launch, which a rank reads to prepare while it
  // waits for its peers.
  std::string launch_file;
  // For a command job.
  Address master;             // MASTER_ADDR and MASTER_PORT
  std::string error_file;     // TORCHELASTIC_ERROR_FILE, as PyTorch writes it
  std::string progress_file;  // for lines of `step=… loss=…`
};

// The variables of the worker's environment that ranks inherit. The worker's own settings
// (MUSTER_*) are never inherited, except MUSTER_CUDA_LIBRARY_PATH, which ranks need to find
// NVIDIA's libraries.
Variables InheritedVariables(const char* const* environment, Inherit inherit);

// The cache of the user: without one, that of the worker's user.
std::string CacheDirectoryOf(const NodeEnvironment& node, const std::optional<JobUser>& user);

// The environment as NAME=value entries. Later sources override earlier ones: inherited, user,
// defaults, the job's `env`, and the rank's placement, which a job cannot override. A command gets
// the variables that torchrun would set. Variables of `secret_env` are left out.
std::vector<std::string> RankVariables(const NodeEnvironment& node, const v1::Launch& launch,
                                       const v1::RankPlacement& placement,
                                       const RankEnvironment& rank);

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_GENERATION_ENVIRONMENT_H_
