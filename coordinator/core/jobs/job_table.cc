#include "coordinator/core/jobs/job_table.h"

#include <glog/logging.h>

#include <algorithm>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/limits.h"
#include "common/proto_time.h"
#include "common/status.h"
#include "coordinator/core/jobs/job_record.h"
#include "coordinator/core/reasons.h"
#include "coordinator/core/records.h"

namespace muster::core {
namespace {

// The most keys deleted in one step, so that a step stays short.
constexpr size_t kDeletionsPerStep = 256;
// Numbers that stay free for a job's generations, whatever number a worker reports.
constexpr uint64_t kGenerationsLeft = 1'000'000;

// About twice its bytes: texts of exits, and small numbers.
size_t MemoryOf(const v1::GenerationRecord& record) { return 2 * record.ByteSizeLong(); }

size_t MemoryOf(const v1::JobEvent& event) {
  return sizeof(event) + event.type().size() + event.message().size();
}

void AddKeys(const v1::GenerationRecord& record, std::vector<std::string>& keys) {
  keys.push_back(GenerationKey(record.job_id(), record.generation()));
  for (int node_rank = 0; node_rank < record.nodes_size(); ++node_rank) {
    keys.push_back(PlacementKey(record.job_id(), record.generation(), node_rank));
  }
}

// Returns the keys of all records of a job, its own first.
std::vector<std::string> KeysOf(const Job& job) {
  const std::string& id = job.status.job_id();
  std::vector<std::string> keys = {JobKey(id)};
  for (const auto& [number, record] : job.past) AddKeys(record, keys);
  for (const v1::JobEvent& event : job.events) keys.push_back(EventKey(id, event.sequence()));
  return keys;
}

bool IsWaiting(v1::JobState state) { return state == v1::QUEUED || state == v1::HELD; }

// Whether a list includes the jobs and arrays in this state.
bool IsSelected(const v1::ListJobsRequest& request, v1::JobState state) {
  if (request.state() != v1::JOB_STATE_UNSPECIFIED) return state == request.state();
  return request.include_finished() || !IsTerminal(state);
}

}  // namespace

// ------------------------------------------------------------------------------------------------
// reading

Job* JobTable::Find(const JobId& id) {
  const auto entry = jobs_.find(id);
  return entry == jobs_.end() ? nullptr : &entry->second;
}

const Job* JobTable::Find(const JobId& id) const {
  const auto entry = jobs_.find(id);
  return entry == jobs_.end() ? nullptr : &entry->second;
}

Job* JobTable::FindLiving(const JobId& id, uint64_t number, const NodeName& node) {
  Job* const job = Find(id);
  if (job == nullptr || !job->generation.has_value()) return nullptr;
  if (job->generation->record.generation() != number) return nullptr;
  return job->generation->NodeRank(node).has_value() ? job : nullptr;
}

bool JobTable::UsesNode(const NodeName& node) const {
  return std::any_of(active_.begin(), active_.end(), [&](const JobId& id) {
    return jobs_.at(id).generation->NodeRank(node).has_value();
  });
}

absl::StatusOr<const Job*> JobTable::Get(const JobId& id) const {
  const Job* const job = Find(id);
  if (job == nullptr) return absl::NotFoundError(absl::StrCat("no job ", id.value()));
  return job;
}

std::vector<const Job*> JobTable::List(const v1::ListJobsRequest& request) const {
  std::vector<const Job*> chosen;
  const auto consider = [&](const Job& job) {
    if (!IsSelected(request, job.state())) return;
    if (!request.owner().empty() && job.status.owner() != request.owner()) return;
    if (request.collapse_arrays() && !job.status.array_id().empty()) return;
    chosen.push_back(&job);
  };
  if (request.array_id().empty()) {
    for (const auto& [id, job] : jobs_) consider(job);
  } else if (const JobArray* const array = arrays_.Find(request.array_id())) {
    for (const uint32_t index : array->tasks) consider(jobs_.at(TaskId(array->id, index)));
  }
  std::sort(chosen.begin(), chosen.end(),
            [](const Job* a, const Job* b) { return a->queue_sequence > b->queue_sequence; });
  return chosen;
}

std::vector<const JobArray*> JobTable::ListArrays(const v1::ListJobsRequest& request) const {
  std::vector<const JobArray*> chosen;
  for (const auto& [id, array] : arrays_.all()) {
    if (!IsSelected(request, array.state())) continue;
    if (!request.owner().empty() && array.owner != request.owner()) continue;
    if (!request.array_id().empty() && id != request.array_id()) continue;
    chosen.push_back(&array);
  }
  return chosen;
}

absl::flat_hash_set<std::string> JobTable::Files() const {
  absl::flat_hash_set<std::string> digests;
  for (const auto& [id, job] : jobs_) {
    for (const v1::FileSpec& file : job.spec().files()) digests.insert(file.sha256());
  }
  return digests;
}

bool JobTable::NeedsFile(const std::optional<NodeName>& node, const std::string& digest) const {
  return std::any_of(active_.begin(), active_.end(), [&](const JobId& id) {
    const Job& job = jobs_.at(id);
    if (node.has_value() && !job.generation->NodeRank(*node).has_value()) return false;
    return std::any_of(job.spec().files().begin(), job.spec().files().end(),
                       [&](const v1::FileSpec& file) { return file.sha256() == digest; });
  });
}

absl::flat_hash_set<std::string> JobTable::UsableFiles(
    const Actor& actor, const absl::flat_hash_set<std::string>& digests) const {
  absl::flat_hash_set<std::string> usable;
  for (const auto& [id, job] : jobs_) {
    if (usable.size() == digests.size()) break;
    if (!job.status.shared() && !MayUse(job.status, actor)) continue;
    for (const v1::FileSpec& file : job.spec().files()) {
      if (digests.contains(file.sha256())) usable.insert(file.sha256());
    }
  }
  return usable;
}

// ------------------------------------------------------------------------------------------------
// life cycle

void JobTable::Transition(Job& job, v1::JobState to, absl::string_view reason,
                          std::string message) {
  CHECK(IsAllowed(job.state(), to))
      << job.id() << " cannot go from " << v1::JobState_Name(job.state()) << " to "
      << v1::JobState_Name(to);
  if (IsWaiting(job.state()) && !IsWaiting(to)) owners_.OnUnqueued(job.status);
  if (!IsWaiting(job.state()) && IsWaiting(to)) owners_.OnQueued(job.status);
  const JobArray* const ended_array = arrays_.OnTransition(job, to);
  job.status.set_state(to);
  job.state_since = context_.now.steady;
  SetReason(job, reason, std::move(message));
  if (!IsTerminal(to)) return;
  DropDependencies(job);
  ended_.push_back({job.status.job_id(), to});
  if (job.status.array_id().empty()) {
    AllowDeletion(job, job.finished);
  } else if (ended_array != nullptr) {
    ended_.push_back({ended_array->id, ended_array->state()});
    AllowDeletion(*ended_array);
  }
}

void JobTable::SetReason(Job& job, absl::string_view reason, std::string message) {
  job.status.set_reason(std::string(reason));
  job.status.set_message(std::move(message));
  UpdateTimeAccount(job);
  MarkJob(job);
}

void JobTable::ReserveGeneration(const JobId& id, uint64_t generation) {
  Job* const job = Find(id);
  generation = std::min(generation, limits::kLargestGeneration - kGenerationsLeft);
  if (job == nullptr || generation < job->NextGeneration().value()) return;
  job->highest_generation = generation;
  MarkJob(*job);
}

void JobTable::BeginGeneration(Job& job, v1::GenerationRecord record) {
  v1::Job& status = job.status;
  job.restarting = false;
  job.preempted = false;
  status.set_generation(record.generation());
  owners_.OnStart(status, CountSlots(record),
                  status.has_start_time() ? std::nullopt : std::make_optional(job.submitted));
  if (!status.has_start_time()) *status.mutable_start_time() = ToProto(context_.now.wall);
  status.clear_summary();
  status.clear_progress();
  if (status.has_checkpoint()) {
    status.mutable_checkpoint()->clear_resumed_from();
    status.mutable_checkpoint()->clear_resumed_step();
    status.mutable_checkpoint()->clear_resumed_job_id();
    status.mutable_checkpoint()->clear_failures();
    status.mutable_checkpoint()->clear_failed_step();
    status.mutable_checkpoint()->clear_failure();
  }
  job.generation_start = context_.now.steady;
  job.ending = Ending();
  job.suspected_failure.reset();
  job.time_account.BeginGeneration(CountSlots(record).total(), context_.now);
  job.generation.emplace(std::move(record), context_.now.steady);
  active_.insert(job.id());
  MarkGeneration(job);
  for (int node_rank = 0; node_rank < job.generation->record.nodes_size(); ++node_rank) {
    MarkPlacement(job, node_rank);
  }
}

void JobTable::DropDependencies(Job& job) {
  dependents_.Remove(job);
  job.after = After();
}

void JobTable::EndGeneration(Job& job) {
  job.generation->record.set_over(true);
  const Ledger spent = job.time_account.EndGeneration(LostNode(job), context_.now);
  CountSettledTime(job);
  owners_.OnEnd(job.status, CountSlots(job.generation->record), spent, job.generation_start);
  histories_.EndGeneration(job);
  job.run_time += std::max(context_.now.steady - job.generation_start, absl::ZeroDuration());
  MarkGeneration(job);
  MarkJob(job);
  v1::GenerationRecord record = std::move(job.generation->record);
  job.generation.reset();
  active_.erase(job.id());
  Charge(job, MemoryOf(record));
  job.past[Generation(record.generation())] = std::move(record);
  DropGenerations(job);
}

void JobTable::DropGenerations(Job& job) {
  std::vector<std::string> keys;
  const bool has_room = HasRoom(job);
  const size_t kept = has_room ? kOldestKept + kNewestKept : kKeptWithoutRoom;
  while (job.past.size() > kept) {
    const auto dropped = std::next(job.past.begin(), has_room ? kOldestKept : 0);
    AddKeys(dropped->second, keys);
    Discharge(job, MemoryOf(dropped->second));
    job.past.erase(dropped);
  }
  for (std::string& key : keys) {
    context_.effects.writes.push_back({std::move(key), std::nullopt});
  }
}

void JobTable::Finish(Job& job, v1::JobState state, absl::string_view reason, std::string message,
                      int exit_code) {
  job.restarting = false;
  owners_.OnFinish(job.status, job.submitted, state);
  job.finished = context_.now.steady;
  job.status.set_exit_code(exit_code);
  *job.status.mutable_finish_time() = ToProto(context_.now.wall);
  AddEvent(job, events::kFinished, absl::StrCat(v1::JobState_Name(state), ": ", message));
  Transition(job, state, reason, std::move(message));
  context_.stats.OnFinished(state, std::string(reason));
}

void JobTable::AddEvent(Job& job, absl::string_view type, std::string message) {
  v1::JobEvent event;
  event.set_job_id(job.status.job_id());
  event.set_sequence(job.next_event_sequence++);
  *event.mutable_time() = ToProto(context_.now.wall);
  event.set_generation(job.status.generation());
  event.set_type(std::string(type));
  event.set_message(std::move(message));
  MarkJob(job);
  context_.effects.writes.push_back(Put(ToRecord(event)));
  Charge(job, MemoryOf(event));
  job.events.push_back(std::move(event));
  const size_t kept = HasRoom(job) ? limits::kEventsPerJob : limits::kEventsWithoutRoom;
  // One more than was added, so that a long history becomes shorter, in short steps.
  for (int i = 0; i < 2 && job.events.size() > kept; ++i) DropOldestEvent(job);
}

void JobTable::DropOldestEvent(Job& job) {
  const v1::JobEvent& oldest = job.events.front();
  context_.effects.writes.push_back(DeleteEvent(job.id(), oldest.sequence()));
  Discharge(job, MemoryOf(oldest));
  job.events.pop_front();
}

bool JobTable::HasRoom(const Job& job) const {
  return !context_.space.IsLow() && memory_.Check(job.status.owner(), 0).ok();
}

void JobTable::Charge(Job& job, size_t bytes) {
  job.memory_bytes += bytes;
  memory_.Add(job.status.owner(), bytes);
}

void JobTable::Discharge(Job& job, size_t bytes) {
  job.memory_bytes -= bytes;
  memory_.Remove(job.status.owner(), bytes);
}

void JobTable::Warn(Job& job, uint32_t rank, const std::string& problem) {
  const int count = job.status.warnings_size();
  const std::string text = absl::StrCat(": ", problem);
  for (const std::string& warning : job.status.warnings()) {
    if (absl::EndsWith(warning, text)) return;
  }
  if (count >= limits::kWarningsPerJob) return;
  const bool last = count + 1 == limits::kWarningsPerJob;
  std::string warning = last ? "further warnings are not shown" : absl::StrCat("rank ", rank, text);
  job.status.add_warnings(warning);
  AddEvent(job, events::kWarning, std::move(warning));
}

// ------------------------------------------------------------------------------------------------
// records

void JobTable::MarkJob(const Job& job) {
  dirty_jobs_.insert(job.id());
  MarkChanged(job);
}

void JobTable::MarkGeneration(const Job& job) {
  dirty_generations_.emplace(job.id(), job.generation->number());
  MarkChanged(job);
}

void JobTable::MarkPlacement(const Job& job, uint32_t node_rank) {
  dirty_placements_.emplace(job.id(), job.generation->number(), node_rank);
  MarkChanged(job);
}

Job& JobTable::Restore(Job restored) {
  const JobId id = restored.id();
  Job& job = jobs_[id] = std::move(restored);
  job.state_since = context_.now.steady;
  job.memory_bytes = 0;
  Charge(job, MemoryOf(job.spec()));
  for (const v1::JobEvent& event : job.events) Charge(job, MemoryOf(event));
  for (const auto& [number, record] : job.past) Charge(job, MemoryOf(record));
  RestoreTimeAccount(job);
  next_queue_sequence_ = std::max(next_queue_sequence_, job.queue_sequence + 1);
  if (!job.status.idempotency_key().empty()) {
    idempotency_keys_.emplace(std::make_pair(job.status.owner(), job.status.idempotency_key()), id);
  }
  if (IsTerminal(job.state()) && job.status.array_id().empty()) {
    AllowDeletion(job, job.finished);
  }
  arrays_.Add(job);
  if (!IsWaiting(job.state())) job.after = After();  // earlier builds kept those of recovered jobs
  dependents_.Add(job);
  if (IsWaiting(job.state())) owners_.OnQueued(job.status);
  if (job.generation.has_value()) {
    active_.insert(id);
    owners_.RestoreRunning(job.status, CountSlots(job.generation->record));
  }
  return job;
}

void JobTable::FinishRestore() {
  for (const auto& [id, array] : arrays_.all()) {
    if (array.ended()) AllowDeletion(array);
  }
  // Decided when they ended, unless the store has been edited.
  for (const std::string& id : dependents_.Targets()) {
    const v1::JobState state = StateOf(id);
    if (state == v1::JOB_STATE_UNSPECIFIED || IsTerminal(state)) ended_.push_back({id, state});
  }
  const std::map<std::string, size_t> owners = memory_.by_owner();
  for (const auto& [owner, bytes] : owners) {
    if (!memory_.IsFarBeyond(owner)) continue;
    const absl::Status status = MakeMemory(owner, 0);
    if (!status.ok()) context_.Log(absl::StrCat("warning: ", status.message()));
  }
}

Job& JobTable::AddRecovered(Job recovered) {
  recovered.queue_sequence = next_queue_sequence_;
  Job& job = Restore(std::move(recovered));
  MarkJob(job);
  return job;
}

void JobTable::WriteChanges() {
  std::vector<store::Mutation>& writes = context_.effects.writes;
  for (const JobId& id : std::exchange(dirty_jobs_, {})) {
    Job& job = jobs_.at(id);
    job.time_account.MarkWritten(context_.now.steady);
    writes.push_back(Put(ToRecord(job)));
  }
  for (const auto& [id, number] : std::exchange(dirty_generations_, {})) {
    writes.push_back(PutGeneration(RecordOf(id, number)));
  }
  for (const auto& [id, number, node_rank] : std::exchange(dirty_placements_, {})) {
    writes.push_back(PutPlacement(RecordOf(id, number), node_rank));
  }
  histories_.WriteChanges();
  owners_.WriteChanges();
  context_.effects.changed_jobs.assign(changed_.begin(), changed_.end());
  changed_.clear();
}

// ------------------------------------------------------------------------------------------------
// retention

void JobTable::ForgetDue() {
  size_t left = kDeletionsPerStep;
  while (left > 0) {
    if (!retention_.HasForgotten()) {
      if (retention_.NextDue() > context_.now.steady) return;
      Remove(JobId(retention_.OldestFinished()));
    }
    left -= retention_.TakeDeletions(left, context_.effects.writes);
  }
}

void JobTable::AllowDeletion(Job& job, SteadyTime order) {
  job.deletion_order = order;
  retention_.AddFinished(order, job.id(), job.status.owner());
}

// The tasks are deleted after the last of them has ended; those that did not succeed last, so that
// the array shows their state as long as it exists.
void JobTable::AllowDeletion(const JobArray& array) {
  SteadyTime end;
  for (const uint32_t index : array.tasks) {
    end = std::max(end, jobs_.at(TaskId(array.id, index)).finished);
  }
  for (const uint32_t index : array.tasks) {
    Job& job = jobs_.at(TaskId(array.id, index));
    AllowDeletion(job, job.state() == v1::SUCCEEDED ? end : end + absl::Nanoseconds(1));
  }
}

void JobTable::Remove(const JobId& id) {
  const auto entry = jobs_.find(id);
  const Job& job = entry->second;
  MarkChanged(job);
  context_.effects.writes.push_back(PutForgotten(id));
  std::vector<std::string> keys = KeysOf(job);
  for (std::string& tail : log_tails_.Remove(job)) keys.push_back(std::move(tail));
  if (std::optional<std::string> history = histories_.Remove(job)) {
    keys.push_back(*std::move(history));
  }
  retention_.AddForgotten(id, std::move(keys));
  const auto key = idempotency_keys_.find({job.status.owner(), job.status.idempotency_key()});
  if (key != idempotency_keys_.end() && key->second == id) idempotency_keys_.erase(key);
  if (job.deletion_order.has_value()) {
    retention_.RemoveFinished(*job.deletion_order, id, job.status.owner());
  }
  memory_.Remove(job.status.owner(), job.memory_bytes);
  dirty_jobs_.erase(id);
  arrays_.Remove(job);
  jobs_.erase(entry);
}

void JobTable::ArmRetention() {
  const TimerKey key{TimerKey::Kind::kRetention, ""};
  const SteadyTime due = retention_.NextDue();
  if (retention_.HasForgotten()) {
    context_.timers.Set(key, context_.now.steady);
  } else if (due == SteadyTime::Infinite()) {
    context_.timers.Cancel(key);
  } else {
    context_.timers.Set(key, due);
  }
}

}  // namespace muster::core
