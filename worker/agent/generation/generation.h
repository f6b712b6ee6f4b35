// One generation of one job on this node: its ranks' processes, state and calls.
#ifndef MUSTER_WORKER_AGENT_GENERATION_GENERATION_H_
#define MUSTER_WORKER_AGENT_GENERATION_GENERATION_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/network/held_port.h"
#include "common/proto_time.h"
#include "common/time.h"
#include "proto/muster/v1/rank.pb.h"
#include "proto/muster/v1/worker.pb.h"
#include "worker/agent/generation/generation_context.h"
#include "worker/agent/generation/hosted_store.h"
#include "worker/agent/generation/rank_locator.h"
#include "worker/agent/generation/secrets.h"
#include "worker/agent/generation/shim_process.h"
#include "worker/agent/job_user.h"
#include "worker/agent/network/master_endpoint.h"
#include "worker/agent/rank/progress_file.h"
#include "worker/agent/rank/rendezvous.h"

namespace muster::agent {

// Must be used on the loop's thread.
//
//   waiting ──Start──> live ──every rank EXITED──> over
//      └──────────Stop──────────────────────────────^
//
// Ranks whose processes outlive SIGKILL keep a generation from being over, but nothing waits for
// them: it is settled.
//
// The ranks of a command job start once their master endpoint is known: the worker of node rank 0
// reserves a port and publishes it under a key of the generation; the other workers wait for it.
//
// With a hosted c10d store, that worker also starts the store, before it publishes the endpoint.
// The store ends with the ranks of all nodes: the generation may be over here and still have its
// store.
//
// State that a later worker needs (the launch, the world, each rank's report) is written to disk
// before it is acted upon or acknowledged. A rank's exit is in its shim's record.
class Generation {
 public:
  // `on_settled` is called on the loop, from within a method of this class, whenever the generation
  // may have become settled or over: it must not destroy this object.
  Generation(const GenerationContext& context, v1::Launch launch, std::function<void()> on_settled);
  ~Generation();
  Generation(const Generation&) = delete;
  Generation& operator=(const Generation&) = delete;

  const std::string& job_id() const { return launch_.job_id(); }
  uint64_t number() const { return launch_.generation(); }
  const v1::Launch& launch() const { return launch_; }
  bool started() const { return started_; }
  bool over() const;
  // Every rank has exited or is unkillable, and the hosted store has ended.
  bool settled() const;
  bool RankIsLive(uint32_t rank) const;
  // Slots of running ranks.
  std::vector<uint32_t> SlotsInUse() const;
  // The full state, for a Hello.
  v1::GenerationReport Inventory();
  // Resends the changes since the newest Hello, whose session has just been opened: messages in
  // between were dropped.
  void ResendChanged();

  // Starts the ranks. A rank that cannot be started is reported as EXITED with its failure.
  void Start();
  // Adopts the ranks that an earlier worker started.
  void Adopt();
  // Sends the directive to the ranks, then stops their shims. Idempotent.
  void Stop(const v1::StopGeneration& stop);
  // The same for a stop that the coordinator did not request, so that it may not end the generation
  // afterwards.
  void StopByWorker(const v1::StopGeneration& stop);
  // The coordinator has ended the generation, which must be over: stops what is left. Returns
  // whether nothing was left; otherwise on_settled follows.
  bool Close();
  // Zero without a lease.
  absl::Duration job_lease() const { return FromProto(launch_.job_lease()); }
  // Replaces the lease deadline of the ranks that run; see worker/shim/fence.h.
  void SetLeaseDeadline(int64_t boot_ms) {
    for (auto& [number, rank] : ranks_) {
      if (rank.shim != nullptr) rank.shim->SetLeaseDeadline(boot_ms);
    }
    if (store_ != nullptr && !over()) store_->SetLeaseDeadline(boot_ms);
  }
  // Reads the progress files of commands.
  void ReadProgress();
  // Reads what the hosted store of this node reports, and keeps the connection to that of another.
  void TickStore();
  // Inspects the running ranks, and sends each result to the coordinator.
  void Inspect();
  // Sends rank 0 the directive to write a checkpoint. Without effect if it does not watch for
  // directives, or once the ranks are being stopped: they may write one by themselves.
  void RequestCheckpoint();

  void OnWorld(const v1::World& world);
  // Writes the notice to the log of each live rank, and stores it for the error of a call that
  // times out.
  void OnWaitNotice(const v1::WaitNotice& notice);
  Rendezvous& rendezvous() { return *rendezvous_; }

  // ---- A rank's calls; its identity has been checked. Each `done` is called exactly once.
  bool TokenMatches(uint32_t rank, const std::string& token) const;
  void Join(const v1::JoinRequest& request, CallId id,
            std::function<void(absl::StatusOr<v1::JoinResponse>)> done);
  absl::Status Report(const v1::ReportRequest& request);
  // Delivers the last directive to abort or stop, if any, and each later directive; ends with the
  // generation.
  void Watch(uint32_t rank, CallId id, std::function<void(const v1::Directive&)> on_directive,
             std::function<void(absl::Status)> done);
  // The caller has cancelled.
  void CancelCall(CallId id);
  void ExpireCall(CallId id) { rendezvous_->Expire(id); }

 private:
  struct RankState {
    v1::RankPlacement placement;
    v1::RankReport report;
    std::string token;
    std::unique_ptr<ShimProcess> shim;
    bool ended = false;  // its processes have ended; EXITED once its devices have been polled
    std::unique_ptr<ProgressFile> progress;  // for a command
    std::string error_file;                  // for a command
    std::optional<uid_t> uid;                // of its user, if that is not the worker's
    std::optional<SteadyTime> silent_since;  // while silent, as reported by its shim
  };
  struct Watcher {
    uint32_t rank = 0;
    std::function<void(const v1::Directive&)> on_directive;
    std::function<void(absl::Status)> done;
  };

  std::string RankDirectory(uint32_t rank) const;
  std::string File(const char* name) const;
  // Chooses the user of the ranks, and makes the directories and files that they need.
  absl::Status MakeFiles();
  absl::Status MakeUserFiles(const JobUser& user) const;
  // Follows the files in which the rank of a command job reports.
  void OpenReports(const shim::Instructions& instructions, RankState& rank) const;
  // Places the job's files, then launches the ranks. With an error, reports all ranks as EXITED.
  void StartRanks(const absl::StatusOr<MasterEndpoint>& master);
  void LaunchRanks(const absl::StatusOr<MasterEndpoint>& master);
  // `secrets`: variables as NAME=value.
  absl::Status StartRank(RankState& rank, const MasterEndpoint& master,
                         const std::vector<std::string>& secrets);
  // On node rank 0: reserves a port.
  absl::StatusOr<MasterEndpoint> HoldMaster();
  void PublishMaster(const std::string& endpoint);
  // On other nodes: waits for the published endpoint.
  void AwaitMaster();
  // The published endpoint, if the ranks of this node can reach it.
  absl::StatusOr<MasterEndpoint> MasterAt(const absl::StatusOr<std::string>& text) const;
  void HoldMasterAgain();
  HostedStore::Events StoreEvents();
  // Starts the hosted store; then publishes the endpoint and starts the ranks.
  void StartStore(const MasterEndpoint& master);
  void OnStoreReady(const absl::Status& status);
  void EndStoreIfOver();
  // On other nodes: connects to the hosted store, if there is one, so that it learns the ranks of
  // this node.
  void LocateRanksFor(const Address& master);
  // Sends the waits in the store, and adds its problems to the reports of the ranks.
  void ReportStore();
  void SendStoreWaits();
  // Adds the problem to the rank's warnings and to its log, once.
  void WarnOfStore(RankState& rank, const std::string& problem);
  void TakeProgress(RankState& rank, const v1::Progress& progress);
  ShimProcess::Events EventsOf(uint32_t rank);
  void OnStarted(RankState& rank, int64_t pid);
  void OnEnded(RankState& rank, const std::optional<shim::ExitRecord>& record);
  void OnDevicesSeen(RankState& rank, v1::ExitInfo exit);
  void SetExited(RankState& rank, v1::ExitInfo exit);
  // The rank's report with its present silence.
  v1::RankReport ReportOf(const RankState& rank) const;
  // Whether new progress of the rank ends its silence.
  static bool IsActivity(const RankState& rank, const v1::Progress& progress);
  absl::Duration SilenceOf(const RankState& rank) const;
  void OnSilence(RankState& rank, absl::Duration silence);
  void OnMemory(RankState& rank, uint64_t bytes);
  void OnUnkillable(RankState& rank, pid_t survivor);
  void OnInspected(const RankState& rank, const std::optional<shim::Inspection>& inspection);
  void OnLogLimit(RankState& rank, const std::string& stream, const std::string& dropped);
  // Extends the lease with the acknowledgements that arrive.
  void KeepLease(const std::shared_ptr<ShimLine>& line) const;
  void OnLostOutput(RankState& rank, const shim::LostOutput& lost);
  // Sends the end of an exited rank's log, unless the job is so large that only the ends of failed
  // ranks and of rank 0 are kept.
  void SendLogTail(const RankState& rank) const;
  absl::Status Persist(const RankState& rank, bool sync) const;
  void StoreRendezvous(const v1::RendezvousRecord& record, bool replace) const;
  // Sends the rank's report, together with all other changes of this loop iteration.
  void Changed(const RankState& rank);
  void SendChanged();
  void FinishIfOver();

  const GenerationContext& context_;
  SecretValues secrets_;     // sent with the launch; empty once the ranks have been launched
  const v1::Launch launch_;  // without secrets, because it is stored
  const std::function<void()> on_settled_;
  std::optional<JobUser> user_;  // of ranks that this worker has started; none: the worker's
  std::map<uint32_t, RankState> ranks_;
  std::unique_ptr<Rendezvous> rendezvous_;
  std::unique_ptr<HeldPort> master_port_;
  MasterEndpoint master_;                 // while the hosted store is being started
  std::unique_ptr<HostedStore> store_;    // null: none has been started
  std::unique_ptr<RankLocator> locator_;  // while the store of another node is in use
  bool ends_by_itself_ = false;           // see StopByWorker
  std::optional<v1::World> world_;
  std::optional<v1::Directive> directive_;  // to abort or stop, for later Watch calls
  std::map<CallId, Watcher> watchers_;
  std::set<uint32_t> changed_;
  std::set<uint32_t> changed_since_hello_;
  bool started_ = false;
  bool finished_ = false;
  // For closures that outlive this object.
  const std::shared_ptr<Generation*> self_;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_GENERATION_GENERATION_H_
