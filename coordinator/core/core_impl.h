// The core's state and its moves, spread over the files that the sections below name.
//
// A step handles its event, then places what can be placed, then writes out what changed: each
// record at most once.
#ifndef MUSTER_COORDINATOR_CORE_CORE_IMPL_H_
#define MUSTER_COORDINATOR_CORE_CORE_IMPL_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/ids.h"
#include "common/time.h"
#include "coordinator/core/core.h"
#include "coordinator/core/event.h"
#include "coordinator/core/jobs/job.h"
#include "coordinator/core/nodes/node.h"
#include "coordinator/core/scheduler/queue.h"
#include "coordinator/core/stats.h"
#include "coordinator/core/timers.h"

namespace muster::core {

class Core::Impl {
 public:
  explicit Impl(Options options) : options_(std::move(options)) {}

  // ---- recovery.cc
  absl::StatusOr<Effects> Load(absl::Span<const store::Record> records, Time now);

  // ---- core.cc
  Effects Step(const Event& event, Time now);
  SteadyTime NextDeadline() const { return timers_.Next(); }
  Stats TakeStats() { return stats_.Take(); }

  // ---- views.cc
  absl::StatusOr<JobId> ResolveJob(absl::string_view name) const;
  absl::StatusOr<v1::Job> GetJob(const JobId& id, bool detailed, Time now) const;
  std::vector<v1::Job> ListJobs(const v1::ListJobsRequest& request, Time now) const;
  absl::StatusOr<std::vector<v1::JobEvent>> ListEvents(const JobId& id, uint64_t after) const;
  std::vector<v1::Node> ListNodes(Time now) const;
  absl::StatusOr<v1::Node> GetNode(const NodeName& name, Time now) const;
  absl::StatusOr<RankLocation> FindRank(const JobId& id, Generation generation, Rank rank) const;

  // ---- waits.cc
  std::vector<LiveWait> ListWaits() const;

 private:
  // ---- core.cc: a step, and what it leaves behind
  void Handle(const SubmitJob& event);
  void Handle(const CancelJob& event);
  void Handle(const HoldJob& event);
  void Handle(const ReleaseJob& event);
  void Handle(const RequeueJob& event);
  void Handle(const SessionOpened& event);
  void Handle(const SessionMessage& event);
  void Handle(const SessionClosed& event);
  void Handle(const Tick& event);
  Effects FinishStep();

  Job* FindJob(const JobId& id);
  Node* FindNode(const NodeName& name);
  // The node's part of the job's generation, if that is the one that lives and the node has ranks
  // of it.
  GenerationState* FindGeneration(Job* job, uint64_t generation, const NodeName& node);

  void MarkChanged(const Job& job) { changed_.insert(job.id()); }
  // Their records are to be written.
  void MarkJob(const Job& job);
  void MarkGeneration(const Job& job);  // what is of the whole
  void MarkPlacement(const Job& job, uint32_t node_rank);
  void MarkNode(const Node& node) { dirty_nodes_.insert(node.name()); }
  const v1::GenerationRecord& RecordOf(const JobId& id, Generation number) const;
  void AddEvent(Job& job, absl::string_view type, std::string message);
  void SendTo(const Node& node, v1::CoordinatorMessage message);
  void Close(SessionId session, absl::Status status);
  void ReplyWith(RequestId request, absl::Status status);
  void ReplyWithJob(RequestId request, const JobId& job, bool already_existed = false);

  // ---- drain.cc: nodes that are to take no more ranks
  void Handle(const CordonNode& event);
  void Handle(const UncordonNode& event);
  void OnLeaving(Node& node);
  // Ends the jobs with ranks on the node and queues them again.
  void MoveJobsAway(const Node& node, const std::string& why);

  // ---- recovery.cc
  void Resume(Job& job);

  // ---- retention.cc
  // When the job that finished first may be forgotten.
  absl::Time NextForgetting() const;
  // A step's share of the deletions that are due.
  void ForgetJobs();
  // Takes a finished job out of memory; its records go with the steps to come.
  void Forget(const JobId& id);
  void ArmRetention();
  absl::Status NoJob(absl::string_view name) const;

  // ---- placement.cc
  void RunQueue();
  // False where the job has to wait.
  bool TryPlace(Job& job);
  enum class Offers { kNow, kIdle };  // of nodes: what is free, or all that they have
  std::vector<v1::NodePlacement> Place(const v1::Resources& resources, Offers offers,
                                       bool share_device) const;
  // Which two ranks of a job would be on one GPU, where that is all that keeps it from being placed
  // on these offers or may be; empty otherwise.
  std::string SharingText(const v1::Resources& resources, Offers offers) const;
  // Whether any GPU is offered twice, by workers of one machine.
  bool OffersShareDevices() const;
  // Ends a job that no node that is known could ever make room for, since ranks of it would be on
  // one GPU. False where waiting may help.
  bool RefuseSharing(Job& job);
  // A job that wants to restart and cannot now.
  void Requeue(Job& job);

  // ---- lifecycle.cc: a job's way through its states
  void Transition(Job& job, v1::JobState to, absl::string_view reason, std::string message);
  // Ends the generation, if it is not ending yet, and queues the job again; no restart is used up.
  void StopAndRequeue(Job& job, absl::string_view reason, std::string message);
  // Does whatever the ranks' phases, failures and exits call for by now. Safe to repeat.
  void Advance(Job& job);
  void AdvanceRendezvous(Job& job);
  // Ranks that joined with different fingerprints: the generation ends for it.
  bool FailOnMismatch(Job& job);
  void Stop(Job& job, v1::JobState outcome, absl::string_view reason, std::string message,
            absl::Duration grace, bool abort);
  void CheckStopped(Job& job);
  void Restart(Job& job);
  void BackToQueue(Job& job);
  void Finish(Job& job, v1::JobState state, absl::string_view reason, std::string message,
              int exit_code);
  void ArmRendezvous(Job& job, v1::RankPhase awaited);
  void ArmTimeLimit(const Job& job);
  void OnTimeLimit(Job& job);
  void OnRendezvousTimeout(Job& job);

  // ---- failures.cc
  void NoteExit(Job& job, RankState& rank, const Node& node);
  void NoteFailureReport(Job& job, RankState& rank);
  void NoteNodeLost(Job& job, const Node& node, const std::string& why);
  void AddFailure(Job& job, v1::FirstFailure failure, bool consequence);
  // What the records tell of a generation that was stopping when the coordinator ended.
  void RecallFailures(Job& job);
  // Whether failures are of interest: not those of ranks that end because they were asked to.
  bool SeeksCause(const Job& job) const;
  // Records the first failure if its cause is certain, or with `final` as far as it can be known.
  void Attribute(Job& job, bool final);
  bool IsAttributed(const Job& job) const;
  bool IsAccused(const GenerationState& generation, const v1::FirstFailure& failure) const;
  // Nodes whose stream broke and whose ranks were seen to go: they need not be waited for.
  void LoseAccusedNodes(Job& job);
  bool HasAccusedRank(const Node& node);
  struct RestartVerdict {
    bool allowed = false;
    std::string reason;
    std::string why_not;
  };
  RestartVerdict MayRestart(const Job& job) const;

  // ---- sessions.cc: how nodes come and go
  Node* Admit(const SessionOpened& event);
  bool MakeRoomForNode();
  void LoseNode(Node& node, const std::string& why);
  void LoseRank(Job& job, RankState& rank, Node& node);
  void Reconcile(Node& node, const v1::Hello& hello);
  void Adopt(Node& node, Job& job, const v1::GenerationReport& report);
  void ReconcileMissing(Node& node, Job& job);
  // Sends what the node's session needs for the job's state: Launch, World or StopGeneration.
  void SyncNode(Job& job, uint32_t node_rank, bool launch);
  void SendStop(const Node& node, const JobId& job, Generation generation, absl::Duration grace,
                const std::string& reason, const std::string& text, bool abort);
  void SendForget(const Node& node, const JobId& job, Generation generation);

  // ---- reports.cc: what workers say
  // `inventory`: from a Hello, and thus all that the worker has.
  void OnReport(Node& node, const v1::GenerationReport& report, bool inventory);
  void ApplyReport(Node& node, Job& job, const v1::RankReport& report, bool inventory);
  void TellOfSkippedSteps(Job& job, const v1::Progress& progress);
  void KeepSummary(Job& job, const v1::TrainSummary& reported);
  // Ranks that do not count (any more): ends them, keeps their slots until then, lets the worker
  // forget them.
  void OnStrayReport(Node& node, const JobId& id, Generation number,
                     const std::vector<const v1::RankReport*>& ranks, bool inventory);
  // Tells the log, and the jobs that have ranks on slots that have become ill.
  void OnSlots(Node& node, const v1::SlotReport& report);
  void OnPutKey(Node& node, const v1::PutKey& put);
  void OnGetKey(Node& node, const v1::GetKey& get);
  void OnArrive(Node& node, const v1::ArriveBarrier& arrive);
  // Barriers that will never be passed, for a rank ended before it arrived: whoever waits is told.
  void AbortHopelessBarriers(Job& job);
  void ReleaseBarrier(const Job& job, const v1::BarrierId& barrier, const absl::Status& status);

  // ---- waits.cc
  struct OpenWait {
    std::string what;
    SteadyTime since;
    uint32_t missing = 0;
    std::optional<v1::BarrierId> barrier;  // none: the rendezvous or the set-up of communicators
  };
  // What ranks of a job that is not stopping wait for.
  std::vector<OpenWait> OpenWaits(const Job& job) const;
  v1::Wait DescribeWait(const Job& job, const OpenWait& open, size_t most, Time now) const;
  // Ranks of `ids` that are waited for, as people read it; `most` of them, and the number of the
  // others.
  void DescribeRanks(const Job& job, std::vector<uint32_t> ids, size_t most, Time now,
                     v1::Wait& wait) const;
  std::string DescribeRank(const Job& job, const RankState& rank, Time now) const;
  std::vector<v1::Wait> Waits(const Job& job, Time now) const;
  // What keeps the job from being placed: a summary, then each node that cannot take its share.
  std::vector<v1::WaitedFor> Blockers(const Job& job) const;
  // The timer is to fire for a wait that begins now.
  void WaitBegins(const Job& job);
  void OnWaitTimer(Job& job);
  // Tells the nodes of the generation and the log; returns what it told.
  v1::Wait SendNotice(const Job& job, const OpenWait& open, bool timed_out);

  // ---- views.cc
  v1::Job View(const Job& job, bool detailed, Time now) const;
  // When the queued job may start; none where that cannot be told.
  std::optional<absl::Duration> TimeToStart(const Job& job, Time now) const;
  // Until the job's generation is over at the latest, as far as it is known.
  std::optional<absl::Duration> TimeLeft(const Job& job, Time now) const;

  const Options options_;

  std::map<JobId, Job> jobs_;
  std::set<JobId> active_;                               // those with a generation that lives
  std::set<std::pair<absl::Time, JobId>> finished_;      // by finish time
  std::map<JobId, std::vector<std::string>> forgotten_;  // keys still on disk, the job's first
  std::map<std::string, JobId> idempotency_keys_;
  JobQueue queue_;
  uint64_t next_queue_sequence_ = 1;
  std::map<NodeName, Node> nodes_;
  std::map<SessionId, NodeName> sessions_;
  Timers timers_;
  StatsCollector stats_;

  // Of the step under way.
  struct PendingReply {
    RequestId request;
    JobId job;
    bool already_existed;
  };
  Time now_;
  Effects effects_;
  std::vector<PendingReply> pending_replies_;  // completed with the job as the step leaves it
  std::set<JobId> changed_;
  std::set<JobId> dirty_jobs_;
  std::set<std::pair<JobId, Generation>> dirty_generations_;
  std::set<std::tuple<JobId, Generation, uint32_t>> dirty_placements_;
  std::set<NodeName> dirty_nodes_;
  bool capacity_changed_ = false;  // something may fit that did not before
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_CORE_IMPL_H_
