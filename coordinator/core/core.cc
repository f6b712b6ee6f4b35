#include "coordinator/core/core.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "coordinator/core/admission.h"
#include "coordinator/core/checkpoints.h"
#include "coordinator/core/context.h"
#include "coordinator/core/identity/identity_table.h"
#include "coordinator/core/jobs/job_table.h"
#include "coordinator/core/life_cycle.h"
#include "coordinator/core/nodes/fence.h"
#include "coordinator/core/nodes/node_table.h"
#include "coordinator/core/owners/secret_table.h"
#include "coordinator/core/queue_views.h"
#include "coordinator/core/records.h"
#include "coordinator/core/recovery/failures.h"
#include "coordinator/core/recovery/hangs.h"
#include "coordinator/core/recovery/load.h"
#include "coordinator/core/recovery/stragglers.h"
#include "coordinator/core/removals.h"
#include "coordinator/core/rendezvous/rendezvous.h"
#include "coordinator/core/reports.h"
#include "coordinator/core/requests.h"
#include "coordinator/core/scheduler/explain.h"
#include "coordinator/core/scheduler/natural_order.h"
#include "coordinator/core/scheduler/scheduler.h"
#include "coordinator/core/sessions.h"
#include "coordinator/core/takeovers.h"
#include "coordinator/core/views.h"

namespace muster::core {

// The parts of the core in dependency order: each uses only those declared above it.
struct Core::Parts {
  explicit Parts(Options options) : context(std::move(options)) {
    scheduler.SetUsage(jobs.owners());
  }

  // ---- State
  Context context;
  NodeTable nodes{context};
  Fence fence{nodes, context};
  JobTable jobs{context};
  SecretTable secrets{context};
  IdentityTable identities{context};
  Scheduler scheduler{context};
  Admission admission{jobs, scheduler};
  Rendezvous rendezvous{jobs, nodes, secrets, context};
  Checkpoints checkpoints{jobs, nodes, context};
  Failures failures{jobs, context};
  Hangs hangs{jobs, nodes, failures, context};
  Stragglers stragglers{jobs, context};
  // ---- Changing that state
  LifeCycle life_cycle{jobs,       nodes,    fence, scheduler,  admission,
                       rendezvous, failures, hangs, stragglers, context};
  Requests requests{jobs, admission, checkpoints, life_cycle, context};
  Removals removals{jobs, nodes, identities, life_cycle, context};
  Reports reports{jobs,     nodes, scheduler,  rendezvous, checkpoints,
                  failures, hangs, stragglers, life_cycle, context};
  Takeovers takeovers{jobs, nodes, life_cycle, reports, context};
  Sessions sessions{jobs,     nodes, fence,      identities, scheduler, rendezvous,
                    failures, hangs, life_cycle, takeovers,  reports,   context};
  // ---- Reading that state
  Views views{jobs, nodes, fence, scheduler, rendezvous, hangs, stragglers};
  QueueViews queue_views{jobs, nodes, scheduler, views};
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
  ASSIGN_OR_RETURN(const std::vector<JobId> active,
                   LoadState(records, p.jobs, p.nodes, p.admission, p.secrets, p.identities,
                             p.fence, p.context));
  p.scheduler.OnCapacityChanged();
  for (const JobId& id : active) p.life_cycle.Resume(p.jobs.at(id));
  return FinishStep();
}

void Core::SetSpace(const store::Space& space) { parts_->context.space.Set(space); }

Effects Core::Step(const Event& event, Time now) {
  parts_->context.now = At(now);
  parts_->jobs.ForgetDue();
  std::visit(
      [this](const auto& fact) {
        if constexpr (Handles<Requests, decltype(fact)>) {
          parts_->requests.Handle(fact);
        } else if constexpr (Handles<Removals, decltype(fact)>) {
          parts_->removals.Handle(fact);
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
  return FinishStep();
}

void Core::OnTick(const Tick& tick) {
  Context& context = parts_->context;
  // Small delays, which every loop has, are not compensated: deadlines would recede forever.
  if (tick.lag > context.options.heartbeat_interval / 4) {
    context.timers.ExtendSilence(tick.lag);
    parts_->nodes.ExtendLeases(tick.lag);
  }
  for (const TimerKey& key : context.timers.TakeDue(context.now.steady)) {
    if (key.kind == TimerKey::Kind::kRecovery) {
      parts_->takeovers.OnTimer();
    } else {
      parts_->life_cycle.OnTimer(key);
    }
  }
}

// Places the jobs that fit, then adds the records that the step changed to its effects, each at
// most once.
Effects Core::FinishStep() {
  Parts& p = *parts_;
  do {
    p.life_cycle.SettleDependencies();
    p.life_cycle.RunQueue();
  } while (p.jobs.HasEnded());
  p.removals.RemoveEvicted();
  p.fence.Update();
  p.jobs.WriteChanges();
  p.nodes.WriteChanges();
  p.requests.Reply([&p](const Job& job) { return p.views.Answer(job); });
  p.jobs.ArmRetention();
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
  return parts_->jobs.Resolve(name);
}

absl::StatusOr<v1::Job> Core::GetJob(const JobId& id, bool detailed, Time now) const {
  ASSIGN_OR_RETURN(const Job* const job, parts_->jobs.Get(id));
  return detailed ? parts_->views.Details(*job, At(now)) : parts_->views.Summary(*job);
}

std::vector<v1::Job> Core::ListJobs(const v1::ListJobsRequest& request, Time) const {
  std::vector<v1::Job> jobs;
  for (const Job* job : parts_->jobs.List(request)) jobs.push_back(parts_->views.Summary(*job));
  return jobs;
}

std::vector<Core::Listed> Core::Select(const v1::ListJobsRequest& request) const {
  std::vector<Listed> listed;
  for (const Job* const job : parts_->jobs.List(request)) {
    listed.push_back({job->queue_sequence, job->status.job_id(), /*is_array=*/false});
  }
  if (!request.collapse_arrays()) return listed;
  for (const JobArray* const array : parts_->jobs.ListArrays(request)) {
    listed.push_back({array->queue_sequence, array->id, /*is_array=*/true});
  }
  std::sort(listed.begin(), listed.end(),
            [](const Listed& a, const Listed& b) { return a.sequence > b.sequence; });
  return listed;
}

v1::Job Core::ListEntry(const JobId& job) const {
  return parts_->views.ListEntry(parts_->jobs.at(job));
}

absl::StatusOr<std::string> Core::ResolveArray(absl::string_view name) const {
  return parts_->jobs.ResolveArray(name);
}

absl::StatusOr<v1::JobArray> Core::GetArray(absl::string_view name) const {
  ASSIGN_OR_RETURN(const std::string id, ResolveArray(name));
  return parts_->jobs.arrays().Find(id)->View();
}

std::vector<JobId> Core::ListTasks(const std::string& array) const {
  std::vector<JobId> tasks;
  for (const uint32_t index : parts_->jobs.arrays().Find(array)->tasks) {
    tasks.push_back(TaskId(array, index));
  }
  return tasks;
}

absl::StatusOr<std::vector<v1::JobEvent>> Core::ListEvents(const JobId& id, uint64_t after) const {
  ASSIGN_OR_RETURN(const Job* const job, parts_->jobs.Get(id));
  std::vector<v1::JobEvent> events;
  for (const v1::JobEvent& event : job->events) {
    if (event.sequence() > after) events.push_back(event);
  }
  return events;
}

absl::StatusOr<v1::JobHistory> Core::GetJobHistory(const JobId& id, size_t max_points,
                                                   Time now) const {
  ASSIGN_OR_RETURN(const Job* const job, parts_->jobs.Get(id));
  v1::JobHistory history = parts_->jobs.histories().View(*job, max_points);
  *history.mutable_job() = parts_->views.Details(*job, At(now));
  history.mutable_job()->clear_ranks();
  history.mutable_job()->clear_waits();
  return history;
}

absl::StatusOr<v1::Curves> Core::GetCurves(const JobId& id, size_t max_points) const {
  ASSIGN_OR_RETURN(const Job* const job, parts_->jobs.Get(id));
  return parts_->jobs.histories().View(*job, max_points).curves();
}

std::vector<v1::Node> Core::ListNodes(Time now) const {
  std::vector<v1::Node> nodes;
  for (const auto& [name, node] : parts_->nodes.all()) nodes.push_back(node.View(At(now)));
  std::sort(nodes.begin(), nodes.end(),
            [](const v1::Node& a, const v1::Node& b) { return NaturalLess(a.name(), b.name()); });
  return nodes;
}

absl::StatusOr<v1::Node> Core::GetNode(const NodeName& name, Time now) const {
  const Node* const node = parts_->nodes.Find(name);
  if (node == nullptr) return absl::NotFoundError(absl::StrCat("no node ", name.value()));
  return node->View(At(now));
}

std::vector<LiveWait> Core::ListWaits() const {
  std::vector<LiveWait> waits = parts_->rendezvous.ListWaits();
  for (LiveWait& wait : waits) wait.since = parts_->context.clock.OnMachine(wait.since);
  return waits;
}

v1::GetQueueResponse Core::GetQueue(uint32_t limit, Time now, const QueuePosition& after) const {
  return parts_->queue_views.Queue(limit, after.count, after.job, At(now));
}

v1::Forecast Core::ForecastJob(const v1::JobSpec& spec, const Actor& actor, Time now) const {
  return parts_->queue_views.ForecastJob(spec, actor, At(now));
}

std::string Core::LimitsWarning(const v1::JobSpec& spec) const {
  return core::LimitsWarning(spec.resources(), parts_->nodes.all());
}

absl::Status Core::CheckSubmit(const v1::JobSpec& spec, const std::vector<ArrayTask>& tasks,
                               const Actor& actor) const {
  RETURN_IF_ERROR(parts_->jobs.CheckSubmit(spec, tasks, actor));
  std::vector<Ended> ended;
  return parts_->jobs.ResolveDependencies(spec.after(), ended).status();
}

v1::GetReportResponse Core::GetReport(uint32_t days, Time now) const {
  now = At(now);
  std::vector<OwnerTable::Unstarted> unstarted;
  std::vector<OwnerTable::Running> running;
  for (const Job* const job : parts_->jobs.List({})) {
    if (!job->status.has_start_time()) {
      unstarted.push_back({job->status.owner(), job->submitted});
    }
    if (!job->generation.has_value()) continue;
    running.push_back(
        {job->status.owner(), job->time_account.OfGeneration(now), job->generation_start});
  }
  SlotCount present;
  for (const auto& [name, node] : parts_->nodes.all()) {
    if (node.state == v1::LOST) continue;
    present.cpu += node.SlotCount("cpu");
    present.gpu += node.SlotCount("gpu");
  }
  return parts_->jobs.owners().Report(days, unstarted, running, present, now);
}

std::vector<v1::OwnerUse> Core::ListOwnerUse(Time now) const {
  return parts_->jobs.owners().Uses(At(now));
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
  ASSIGN_OR_RETURN(const Job* const job, parts_->jobs.Get(id));
  const Generation number = NumberOf(*job, generation);
  ASSIGN_OR_RETURN(const v1::NodePlacement* const placement, PlacementOf(*job, number, rank));
  const Node* const node = parts_->nodes.Find(NodeName(placement->node()));
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
  ASSIGN_OR_RETURN(const Job* const job, parts_->jobs.Get(id));
  const Generation number = NumberOf(*job, generation);
  ASSIGN_OR_RETURN(const v1::NodePlacement* const placement, PlacementOf(*job, number, rank));
  const v1::LogTail* const tail = parts_->jobs.log_tails().Find(*job, number, rank);
  if (tail != nullptr) return KeptLog{*tail, NodeName(placement->node())};
  return absl::NotFoundError(absl::StrCat("the coordinator has no part of the log of rank ",
                                          rank.value(), " of job ", id.value(), ", generation ",
                                          number.value()));
}

const MemoryBudget& Core::memory() const { return parts_->jobs.memory(); }

const StoreIdentity& Core::store() const { return parts_->context.store; }

absl::flat_hash_set<std::string> Core::ListFiles() const { return parts_->jobs.Files(); }

bool Core::NeedsFile(const std::optional<NodeName>& node, const std::string& digest) const {
  return parts_->jobs.NeedsFile(node, digest);
}

absl::flat_hash_set<std::string> Core::UsableFiles(
    const Actor& actor, const absl::flat_hash_set<std::string>& digests) const {
  return parts_->jobs.UsableFiles(actor, digests);
}

Stats Core::TakeStats() {
  Ledger certain;
  for (const JobId& id : parts_->jobs.active()) {
    certain.Add(parts_->jobs.at(id).time_account.CertainlyPending(parts_->context.now));
  }
  return parts_->context.stats.Take(certain);
}

}  // namespace muster::core
