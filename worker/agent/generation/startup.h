// Starts the ranks of a generation: makes their files, finds the master endpoint, starts the hosted
// store, places the job's files, and launches the ranks.
#ifndef MUSTER_WORKER_AGENT_GENERATION_STARTUP_H_
#define MUSTER_WORKER_AGENT_GENERATION_STARTUP_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/muster/v1/worker.pb.h"
#include "worker/agent/generation/generation_context.h"
#include "worker/agent/generation/ranks/rank.h"
#include "worker/agent/generation/secrets.h"
#include "worker/agent/generation/store/job_store.h"
#include "worker/agent/generation/store/master_endpoint.h"
#include "worker/agent/job_user.h"

namespace muster::agent {

// Must be used on the loop's thread. Destroying it before it is done starts no ranks.
class Startup {
 public:
  struct Outside {
    // Whether the ranks have been directed to stop: none is started any more.
    std::function<bool()> is_stopping;
    // Each rank has been started, or has EXITED with its failure.
    std::function<void()> on_done;
  };

  // Everything that is passed by reference must outlive it. `secrets`: sent with the launch.
  Startup(const GenerationContext& context, const v1::Launch& launch, SecretValues secrets,
          std::map<uint32_t, Rank>& ranks, MasterPort& master, JobStore& store, Outside outside);
  ~Startup() { *self_ = nullptr; }
  Startup(const Startup&) = delete;
  Startup& operator=(const Startup&) = delete;

  void Start();
  // See JobStore::Events.
  void OnStoreReady(const absl::Status& status);

 private:
  // Chooses the user of the ranks, and makes the directories and files that they need.
  absl::Status MakeFiles();
  absl::Status MakeUserFiles(const JobUser& user) const;
  // Places the job's files, then launches the ranks.
  void PlaceFiles(const absl::StatusOr<MasterEndpoint>& master);
  // With an error, all ranks have EXITED.
  void LaunchRanks(const absl::StatusOr<MasterEndpoint>& master);

  const GenerationContext& context_;
  const v1::Launch& launch_;
  SecretValues secrets_;
  std::map<uint32_t, Rank>& ranks_;
  MasterPort& master_;
  JobStore& store_;
  const Outside outside_;
  std::optional<JobUser> user_;  // none: the worker's
  MasterEndpoint endpoint_;      // while the hosted store is being started
  // For closures that outlive this object.
  const std::shared_ptr<Startup*> self_ = std::make_shared<Startup*>(this);
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_GENERATION_STARTUP_H_
