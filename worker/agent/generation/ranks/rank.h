// One rank on this node: its processes, and the files in which its program reports.
#ifndef MUSTER_WORKER_AGENT_GENERATION_RANKS_RANK_H_
#define MUSTER_WORKER_AGENT_GENERATION_RANKS_RANK_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/http/address.h"
#include "proto/muster/v1/rank.pb.h"
#include "proto/muster/v1/worker.pb.h"
#include "worker/agent/generation/generation_context.h"
#include "worker/agent/generation/ranks/rank_record.h"
#include "worker/agent/generation/ranks/shim_process.h"
#include "worker/agent/job_user.h"
#include "worker/agent/rank/progress_file.h"

namespace muster::agent {

// Must be used on the loop's thread. The destructor does not stop the rank, which waits under its
// shim for the next worker.
class Rank {
 public:
  // Called on the loop, from within methods of the rank, which must not be destroyed in them.
  struct Events {
    // The record has changed and is to be sent.
    std::function<void(const Rank& rank)> on_change;
    // No process of the rank is left. Its exit is recorded afterwards.
    std::function<void()> on_ended;
    // The exit of a rank that had processes has been recorded.
    std::function<void()> on_exited;
    // Processes of the rank outlive SIGKILL.
    std::function<void()> on_unkillable;
  };

  // Context, launch and events must outlive the rank.
  Rank(const GenerationContext& context, const v1::Launch& launch,
       const v1::RankPlacement& placement, const Events& events);
  ~Rank() { *self_ = nullptr; }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  const v1::RankPlacement& placement() const { return placement_; }
  RankRecord& record() { return record_; }
  const RankRecord& record() const { return record_; }
  // EXITED, or its processes outlive SIGKILL.
  bool settled() const { return record_.exited() || record_.report().unkillable(); }
  bool TokenMatches(const std::string& token) const { return SameToken(token_, token); }

  // Starts the processes. `secrets`: variables as NAME=value.
  absl::Status Start(const Address& master, const std::optional<JobUser>& user,
                     const std::vector<std::string>& secrets);
  // Adopts what an earlier worker started. Returns the rendezvous address of its program; nothing
  // if it never had a process, and so has EXITED.
  std::optional<Address> Adopt();
  // Stops the processes, or records the exit of a rank that has none. `is_repeated`: with the
  // reason of an earlier call.
  void Stop(const v1::StopGeneration& stop, bool is_repeated);
  void SetLeaseDeadline(int64_t boot_ms);
  // Writes a line to the log of its stderr.
  void Note(const std::string& line);
  // Inspects the processes, and sends the result to the coordinator.
  void Inspect();
  // Reads the progress file of a command.
  void ReadProgress();
  // Records the report of a native rank. ABORTED once it has exited.
  absl::Status Report(const v1::ReportRequest& request);
  // Adds a warning to the record, and to the log.
  void Warn(const std::string& warning);
  // Sends the end of an exited rank's log, unless the job is so large that only the ends of failed
  // ranks and of rank 0 are kept.
  void SendLogTail() const;

 private:
  std::string Directory() const;
  ShimProcess::Events ShimEvents();
  // Follows the files in which the rank of a command job reports.
  void OpenReports(const shim::Instructions& instructions);
  void TakeProgress(const v1::Progress& progress);
  void OnEnded(const std::optional<shim::ExitRecord>& record);
  void OnInspected(const shim::Inspection& inspection) const;

  const GenerationContext& context_;
  const v1::Launch& launch_;
  const v1::RankPlacement placement_;
  const Events& events_;
  RankRecord record_;
  std::string token_;
  std::unique_ptr<ShimProcess> shim_;            // null: no processes
  bool ended_ = false;                           // EXITED once its devices have been polled
  std::unique_ptr<ProgressFile> progress_file_;  // of a command
  std::string error_file_;                       // of a command
  std::optional<uid_t> uid_;                     // of its user, if that is not the worker's
  // For closures that outlive this object.
  const std::shared_ptr<Rank*> self_ = std::make_shared<Rank*>(this);
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_GENERATION_RANKS_RANK_H_
