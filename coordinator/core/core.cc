#include "coordinator/core/core.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "coordinator/core/context.h"
#include "coordinator/core/identity/identity_table.h"
#include "coordinator/core/jobs/jobs.h"
#include "coordinator/core/lifecycle/generations.h"
#include "coordinator/core/lifecycle/growth.h"
#include "coordinator/core/lifecycle/life_cycle.h"
#include "coordinator/core/lifecycle/losses.h"
#include "coordinator/core/lifecycle/queueing.h"
#include "coordinator/core/nodes/fence.h"
#include "coordinator/core/nodes/nodes.h"
#include "coordinator/core/owners/secret_table.h"
#include "coordinator/core/records.h"
#include "coordinator/core/recovery/failures.h"
#include "coordinator/core/recovery/hangs.h"
#include "coordinator/core/recovery/load.h"
#include "coordinator/core/recovery/stragglers.h"
#include "coordinator/core/rendezvous/rendezvous.h"
#include "coordinator/core/requests/job_requests.h"
#include "coordinator/core/requests/node_requests.h"
#include "coordinator/core/scheduler/explain.h"
#include "coordinator/core/scheduler/placement/natural_order.h"
#include "coordinator/core/scheduler/scheduler.h"
#include "coordinator/core/sessions/reports.h"
#include "coordinator/core/sessions/sessions.h"
#include "coordinator/core/sessions/takeovers.h"
#include "coordinator/core/views/views.h"

namespace muster::core {

// The parts of the core in dependency order: each uses only those declared above it.
struct Core::Parts {
  explicit Parts(Options options) : context(std::move(options)) { scheduler.SetUsage(jobs.owners); }

  void OnTimer(const TimerKey& key);

  // ---- State
  Context context;
  Nodes nodes{context};
  Fence fence{nodes.table, context};
  Jobs jobs{context};
  SecretTable secrets{context};
  IdentityTable identities{context};
  Scheduler scheduler{context};
  Rendezvous rendezvous{jobs.table, jobs.eviction, nodes.table, context};
  Failures failures{jobs.table, context};
  Hangs hangs{jobs.table, nodes.table, failures, context};
  Stragglers stragglers{jobs.table, context};
  // ---- Changing that state
  Generations generations{jobs,     nodes, secrets,    scheduler, rendezvous,
                          failures, hangs, stragglers, context};
  Growth growth{jobs.table, nodes.table, scheduler, context};
  Queueing queueing{jobs.table, jobs.states, nodes.table, scheduler, generations, context};
  LifeCycle life_cycle{jobs.table, jobs.states, rendezvous, failures, hangs,
                       growth,     generations, queueing,   context};
  Losses losses{jobs.table, nodes, fence, scheduler, rendezvous, failures, life_cycle, context};
  JobRequests job_requests{jobs, nodes.table, queueing, life_cycle, context};
  NodeRequests node_requests{jobs.table, nodes,  identities, generations,
                             life_cycle, losses, context};
  Reports reports{jobs,       nodes,       scheduler,  rendezvous, failures, hangs,
                  stragglers, generations, life_cycle, losses,     context};
  Takeovers takeovers{jobs, nodes, generations, queueing, life_cycle, losses, reports, context};
  Sessions sessions{jobs.table, nodes,     fence,   identities,  scheduler,
                    rendezvous, failures,  hangs,   generations, life_cycle,
                    losses,     takeovers, reports, context};
  // ---- Reading that state
  Views views{jobs.table, jobs.owners, nodes.table, fence,
              scheduler,  rendezvous,  hangs,       stragglers};
};

namespace {

template <typename Handler, typename Event>
concept Handles = requires(Handler& handler, const Event& event) {
  handler.Handle(event);
};

}  // namespace

Core::Core(Options options) : parts_(std::make_unique<Parts>(std::move(options))) {}
Core::~Core() = default;

absl::StatusOr<Effects> Core::Load(absl::Span<const store::Record> records, Time now) {
  Parts& p = *parts_;
  p.context.now = now;
  ASSIGN_OR_RETURN(const LoadedJobs loaded, LoadState(records, p.jobs, p.nodes.sessions, p.secrets,
                                                      p.identities, p.fence, p.context));
  for (const JobId& id : loaded.queued) p.queueing.Enter(p.jobs.table.at(id));
  p.scheduler.OnCapacityChanged();
  for (const JobId& id : loaded.active) p.life_cycle.Resume(p.jobs.table.at(id));
  return FinishStep(/*more=*/false);
}

void Core::SetSpace(const store::Space& space) { parts_->context.space.Set(space); }

Effects Core::Step(const Event& event, Time now, bool more) {
  parts_->context.now = At(now);
  parts_->jobs.eviction.ForgetDue();
  std::visit(
      [this](const auto& fact) {
        if constexpr (Handles<JobRequests, decltype(fact)>) {
          parts_->job_requests.Handle(fact);
        } else if constexpr (Handles<NodeRequests, decltype(fact)>) {
          parts_->node_requests.Handle(fact);
        } else if constexpr (Handles<SecretTable, decltype(fact)>) {
          parts_->secrets.Handle(fact);
        } else if constexpr (Handles<IdentityTable, decltype(fact)>) {
          parts_->identities.Handle(fact);
        } else if constexpr (Handles<Takeovers, decltype(fact)>) {
          parts_->takeovers.Handle(fact);
        } else if constexpr (Handles<Sessions, decltype(fact)>) {
          parts_->sessions.Handle(fact);
        } else {
          OnTick(fact);
        }
      },
      event);
  return FinishStep(more && !CountsQueuedJobs(event));
}

void Core::OnTick(const Tick& tick) {
  Context& context = parts_->context;
  // Small delays, which every loop has, are not compensated: deadlines would recede forever.
  if (tick.lag > context.options.heartbeat_interval / 4) {
    context.timers.ExtendSilence(tick.lag);
    parts_->nodes.sessions.ExtendLeases(tick.lag);
  }
  for (const TimerKey& key : context.timers.TakeDue(context.now.steady)) {
    parts_->OnTimer(key);
  }
}

void Core::Parts::OnTimer(const TimerKey& key) {
  Job* const job = jobs.table.Find(JobId(key.name));
  switch (key.kind) {
    case TimerKey::Kind::kPlacement:
    case TimerKey::Kind::kAgeing:
      return scheduler.OnCapacityChanged();
    case TimerKey::Kind::kRetention:
    case TimerKey::Kind::kReasons:
      return;  // handled at the beginning or the end of the step
    case TimerKey::Kind::kRecovery:
      return takeovers.OnTimer();
    case TimerKey::Kind::kGrowth:
      return life_cycle.OnGrowthTimer();
    case TimerKey::Kind::kCoolDown:
      return nodes.health.EndCoolDown(NodeName(key.name));
    case TimerKey::Kind::kSelfTest:
      return nodes.health.OnSelfTestTimer(NodeName(key.name));
    case TimerKey::Kind::kLease:
      return losses.OnLeaseEnd(NodeName(key.name));
    case TimerKey::Kind::kJobLease:
      return losses.OnJobLeaseEnd(NodeName(key.name));
    case TimerKey::Kind::kDelay:
      if (job != nullptr) queueing.OnDelayEnd(*job);
      return;
    default:
      break;
  }
  if (job == nullptr || !job->generation.has_value()) return;
  switch (key.kind) {
    case TimerKey::Kind::kCause:
      return failures.Attribute(*job, /*final=*/true);
    case TimerKey::Kind::kRendezvous:
      return losses.OnPhaseTimer(*job);
    case TimerKey::Kind::kTimeLimit:
      return life_cycle.OnTimeLimit(*job);
    case TimerKey::Kind::kHang:
      hangs.OnTimer(*job);
      return life_cycle.Advance(*job);
    case TimerKey::Kind::kStall:
      return hangs.OnStall(*job);
    case TimerKey::Kind::kWait:
      return rendezvous.OnWaitTimer(*job);
    case TimerKey::Kind::kStop:
      return life_cycle.OnStopTimer(*job);
    default:
      return;
  }
}

// Whether the event is a submission of an owner whose next one may be refused because the jobs of
// this one wait.
bool Core::CountsQueuedJobs(const Event& event) const {
  const auto* const submit = std::get_if<SubmitJob>(&event);
  if (submit == nullptr) return false;
  const SchedulerOptions& options = parts_->context.options.scheduler;
  return options.LimitsOf(submit->actor.name).queued_jobs > 0;
}

// Places the jobs that fit, unless another event of the turn follows, then adds the records that
// the step changed to its effects, each at most once.
Effects Core::FinishStep(bool more) {
  Parts& p = *parts_;
  do {
    p.queueing.SettleDependencies();
    if (!more || p.queueing.SomeJobRestarts()) p.life_cycle.RunQueue();
  } while (p.jobs.states.HasEnded());
  p.node_requests.RemoveEvicted();
  p.fence.Update();
  p.jobs.WriteChanges();
  p.nodes.table.WriteChanges();
  p.job_requests.Reply([&p](const Job& job) { return p.views.Answer(job); });
  p.jobs.eviction.Arm();
  std::vector<store::Mutation>& writes = p.context.effects.writes;
  if (!writes.empty()) {
    v1::CommitRecord commit;
    commit.set_index(++p.context.store.commit_index);
    p.context.clock.Note(p.context.now, commit);
    writes.push_back(Put(commit));
  }
  return std::exchange(p.context.effects, Effects());
}

SteadyTime Core::NextDeadline() const {
  return parts_->context.clock.OnMachine(parts_->context.timers.Next());
}

// ------------------------------------------------------------------------------------------------
// reading

Time Core::At(Time machine) const { return parts_->context.clock.At(machine); }

absl::StatusOr<JobId> Core::ResolveJob(absl::string_view name) const {
  return parts_->jobs.names.Resolve(name);
}

absl::StatusOr<v1::Job> Core::GetJob(const JobId& id, bool detailed, Time now) const {
  ASSIGN_OR_RETURN(const Job* const job, parts_->jobs.table.Get(id));
  return detailed ? parts_->views.Details(*job, At(now)) : parts_->views.Summary(*job);
}

std::vector<v1::Job> Core::ListJobs(const v1::ListJobsRequest& request, Time) const {
  std::vector<v1::Job> jobs;
  for (const Job* job : core::ListJobs(parts_->jobs.table, request))
    jobs.push_back(parts_->views.Summary(*job));
  return jobs;
}

std::vector<Core::Listed> Core::Select(const v1::ListJobsRequest& request) const {
  std::vector<Listed> listed;
  for (const Job* const job : core::ListJobs(parts_->jobs.table, request)) {
    listed.push_back({job->queue_sequence, job->status.job_id(), /*is_array=*/false});
  }
  if (!request.collapse_arrays()) return listed;
  for (const JobArray* const array : core::ListArrays(parts_->jobs.table, request)) {
    listed.push_back({array->queue_sequence, array->id, /*is_array=*/true});
  }
  std::sort(listed.begin(), listed.end(),
            [](const Listed& a, const Listed& b) { return a.sequence > b.sequence; });
  return listed;
}

absl::StatusOr<v1::Job> Core::ListEntry(const JobId& id) const {
  ASSIGN_OR_RETURN(const Job* const job, parts_->jobs.table.Get(id));
  return parts_->views.ListEntry(*job);
}

absl::StatusOr<std::string> Core::ResolveArray(absl::string_view name) const {
  return parts_->jobs.names.ResolveArray(name);
}

absl::StatusOr<v1::JobArray> Core::GetArray(absl::string_view name) const {
  ASSIGN_OR_RETURN(const std::string id, ResolveArray(name));
  return parts_->jobs.table.arrays().Find(id)->View();
}

std::vector<JobId> Core::ListTasks(const std::string& array) const {
  std::vector<JobId> tasks;
  for (const uint32_t index : parts_->jobs.table.arrays().Find(array)->tasks) {
    tasks.push_back(TaskId(array, index));
  }
  return tasks;
}

absl::StatusOr<std::vector<v1::JobEvent>> Core::ListEvents(const JobId& id, uint64_t after) const {
  ASSIGN_OR_RETURN(const Job* const job, parts_->jobs.table.Get(id));
  std::vector<v1::JobEvent> events;
  for (const v1::JobEvent& event : job->events) {
    if (event.sequence() > after) events.push_back(event);
  }
  return events;
}

absl::StatusOr<v1::JobHistory> Core::GetJobHistory(const JobId& id, size_t max_points,
                                                   Time now) const {
  ASSIGN_OR_RETURN(const Job* const job, parts_->jobs.table.Get(id));
  v1::JobHistory history = parts_->jobs.histories.View(*job, max_points);
  *history.mutable_job() = parts_->views.Details(*job, At(now));
  history.mutable_job()->clear_ranks();
  history.mutable_job()->clear_waits();
  return history;
}

absl::StatusOr<v1::Curves> Core::GetCurves(const JobId& id, size_t max_points) const {
  ASSIGN_OR_RETURN(const Job* const job, parts_->jobs.table.Get(id));
  return parts_->jobs.histories.View(*job, max_points).curves();
}

std::vector<v1::Node> Core::ListNodes(Time now) const {
  std::vector<v1::Node> nodes;
  for (const auto& [name, node] : parts_->nodes.table.all())
    nodes.push_back(parts_->views.OfNode(node, At(now)));
  std::sort(nodes.begin(), nodes.end(),
            [](const v1::Node& a, const v1::Node& b) { return NaturalLess(a.name(), b.name()); });
  return nodes;
}

absl::StatusOr<v1::Node> Core::GetNode(const NodeName& name, Time now) const {
  const Node* const node = parts_->nodes.table.Find(name);
  if (node == nullptr) return absl::NotFoundError(absl::StrCat("no node ", name.value()));
  return parts_->views.OfNode(*node, At(now));
}

std::vector<LiveWait> Core::ListWaits() const {
  std::vector<LiveWait> waits = parts_->rendezvous.ListWaits();
  for (LiveWait& wait : waits) wait.since = parts_->context.clock.OnMachine(wait.since);
  return waits;
}

v1::GetQueueResponse Core::GetQueue(uint32_t limit, Time now, const QueuePosition& after) const {
  return parts_->views.Queue(limit, after.count, after.job, At(now));
}

v1::Forecast Core::ForecastJob(const v1::JobSpec& spec, const Actor& actor, Time now) const {
  return parts_->views.ForecastJob(spec, actor, At(now));
}

std::string Core::LimitsWarning(const v1::JobSpec& spec) const {
  return core::LimitsWarning(spec.resources(), parts_->nodes.table.all());
}

absl::Status Core::CheckSubmit(const SubmitJob& event, Time now) {
  parts_->context.now = At(now);
  return parts_->jobs.submission.CheckSubmit(event);
}

v1::GetReportResponse Core::GetReport(uint32_t days, Time now) const {
  now = At(now);
  std::vector<OwnerTable::Unstarted> unstarted;
  std::vector<OwnerTable::Running> running;
  for (const Job* const job : core::ListJobs(parts_->jobs.table, {})) {
    if (!job->status.has_start_time()) {
      unstarted.push_back({job->status.owner(), job->submitted});
    }
    if (!job->generation.has_value()) continue;
    running.push_back(
        {job->status.owner(), job->time_account.OfGeneration(now), job->generation_start});
  }
  SlotCount present;
  for (const auto& [name, node] : parts_->nodes.table.all()) {
    if (node.state == v1::LOST) continue;
    present.cpu += node.SlotCount("cpu");
    present.gpu += node.SlotCount("gpu");
  }
  return parts_->jobs.owners.Report(days, unstarted, running, present, now);
}

std::vector<v1::OwnerUse> Core::ListOwnerUse(Time now) const {
  return parts_->jobs.owners.Uses(At(now));
}

v1::ListSecretsResponse Core::ListSecrets(const Actor& actor) const {
  return parts_->secrets.List(actor);
}

v1::ListJoinTokensResponse Core::ListJoinTokens(Time now) const {
  return parts_->identities.ListTokens(now);
}

namespace {

// The node that runs, or ran, the rank of the generation. Errors: NOT_FOUND; OUT_OF_RANGE if the
// generation has fewer ranks.
absl::StatusOr<const v1::NodePlacement*> PlacementOf(const Job& job, Generation generation,
                                                     Rank rank) {
  const v1::GenerationRecord* const record = job.FindRecord(generation);
  if (record == nullptr) {
    return absl::NotFoundError(
        generation == Generation(0)
            ? absl::StrCat("job ", job.id().value(), " has not started")
            : absl::StrCat("job ", job.id().value(), " has no generation ", generation.value()));
  }
  for (const v1::NodePlacement& placement : record->nodes()) {
    const uint32_t first = placement.ranks(0).rank();
    if (rank.value() >= first && rank.value() < first + placement.ranks_size()) return &placement;
  }
  return absl::OutOfRangeError(absl::StrCat("rank ", rank.value(), " is out of range: generation ",
                                            generation.value(), " of job ", job.id().value(),
                                            " has ", record->world_size(), " ranks"));
}

// The newest generation for 0.
Generation NumberOf(const Job& job, Generation generation) {
  return generation == Generation(0) ? Generation(job.status.generation()) : generation;
}

}  // namespace

absl::StatusOr<Core::RankLocation> Core::FindRank(const JobId& id, Generation generation,
                                                  Rank rank) const {
  ASSIGN_OR_RETURN(const Job* const job, parts_->jobs.table.Get(id));
  const Generation number = NumberOf(*job, generation);
  ASSIGN_OR_RETURN(const v1::NodePlacement* const placement, PlacementOf(*job, number, rank));
  const Node* const node = parts_->nodes.table.Find(NodeName(placement->node()));
  if (node == nullptr || !node->session.has_value()) {
    return absl::UnavailableError(absl::StrCat("node ", placement->node(), ", which ran rank ",
                                               rank.value(), ", is not connected"));
  }
  if (!node->conflict.empty()) {
    return absl::UnavailableError(absl::StrCat("node ", placement->node(), ", which ran rank ",
                                               rank.value(), ", is in conflict: ", node->conflict));
  }
  const v1::RankRecord& of_rank = placement->ranks(rank.value() - placement->ranks(0).rank());
  return RankLocation{*node->session, node->name(), number,
                      job->FindRecord(number)->over() || of_rank.exited() || of_rank.lost()};
}

absl::StatusOr<Core::KeptLog> Core::FindLogTail(const JobId& id, Generation generation,
                                                Rank rank) const {
  ASSIGN_OR_RETURN(const Job* const job, parts_->jobs.table.Get(id));
  const Generation number = NumberOf(*job, generation);
  ASSIGN_OR_RETURN(const v1::NodePlacement* const placement, PlacementOf(*job, number, rank));
  const v1::LogTail* const tail = parts_->jobs.log_tails.Find(*job, number, rank);
  if (tail != nullptr) return KeptLog{*tail, NodeName(placement->node())};
  return absl::NotFoundError(absl::StrCat("the coordinator has no part of the log of rank ",
                                          rank.value(), " of job ", id.value(), ", generation ",
                                          number.value()));
}

const MemoryBudget& Core::memory() const { return parts_->jobs.memory; }

const StoreIdentity& Core::store() const { return parts_->context.store; }

std::map<std::string, absl::flat_hash_set<std::string>> Core::ListFiles() const {
  return FilesOf(parts_->jobs.table);
}

bool Core::NeedsFile(const std::optional<NodeName>& node, const std::string& digest) const {
  return core::NeedsFile(parts_->jobs.table, node, digest);
}

absl::flat_hash_set<std::string> Core::UsableFiles(
    const Actor& actor, const absl::flat_hash_set<std::string>& digests) const {
  return core::UsableFiles(parts_->jobs.table, actor, digests);
}

Stats Core::TakeStats() {
  Ledger certain;
  for (const JobId& id : parts_->jobs.table.active()) {
    certain.Add(parts_->jobs.table.at(id).time_account.CertainlyPending(parts_->context.now));
  }
  return parts_->context.stats.Take(certain);
}

}  // namespace muster::core
