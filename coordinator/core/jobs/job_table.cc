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
// The most jobs that the error for an ambiguous name lists.
constexpr size_t kListedMatches = 5;

// Returns the keys of all records of a job, its own first.
std::vector<std::string> KeysOf(const Job& job) {
  const std::string& id = job.status.job_id();
  std::vector<std::string> keys = {JobKey(id)};
  for (const auto& [number, record] : job.past) {
    keys.push_back(GenerationKey(id, number.value()));
    for (int node_rank = 0; node_rank < record.nodes_size(); ++node_rank) {
      keys.push_back(PlacementKey(id, number.value(), node_rank));
    }
  }
  for (const v1::JobEvent& event : job.events) keys.push_back(EventKey(id, event.sequence()));
  return keys;
}

// Names the newest of the jobs that `given` matches.
absl::Status Ambiguous(const std::string& given, std::vector<const Job*> matches) {
  std::sort(matches.begin(), matches.end(),
            [](const Job* a, const Job* b) { return a->queue_sequence > b->queue_sequence; });
  const size_t listed = std::min(matches.size(), kListedMatches);
  std::vector<std::string> ids;
  for (size_t i = 0; i < listed; ++i) ids.push_back(matches[i]->id().value());
  if (matches.size() > listed) ids.push_back(absl::StrCat(matches.size() - listed, " more"));
  return absl::InvalidArgumentError(absl::StrCat("job ", given, " is ambiguous: it matches ",
                                                 absl::StrJoin(ids, ", "),
                                                 "; give more of the id"));
}

// Checks that a repeated submission has the spec of the job that its idempotency key created. Jobs
// of older stores have no digest and are not compared.
absl::Status CheckSameSpec(const Job& job, const SubmitJob& event) {
  const bool comparable = !job.submitted_digest.empty() && !event.spec_digest.empty();
  if (!comparable || job.submitted_digest == event.spec_digest) return absl::OkStatus();
  return absl::AlreadyExistsError(absl::StrCat("idempotency key ", event.idempotency_key,
                                               " was already used for job ", job.status.job_id(),
                                               " with another spec; use a new key"));
}

// Sets the directory that all nodes share for the job's checkpoints, if there is one. It is kept
// with the job, so that a later change of the coordinator's option does not move checkpoints.
void SetSharedCheckpointDir(const std::string& of_cluster, v1::Job& job) {
  const v1::JobSpec& spec = job.spec();
  std::string dir = spec.checkpoint_dir();
  if (dir.empty() && spec.train().checkpoint().dir().empty() && !of_cluster.empty()) {
    dir = absl::StrCat(of_cluster, "/", job.job_id());
  }
  if (dir.empty()) return;
  job.mutable_checkpoint()->set_dir(std::move(dir));
  job.mutable_checkpoint()->set_shared(true);
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

absl::StatusOr<JobId> JobTable::Resolve(absl::string_view name) const {
  const std::string given(name);
  if (given.empty()) return absl::NotFoundError("job id is empty");
  if (jobs_.count(JobId(given)) != 0) return JobId(given);
  std::vector<const Job*> named, begun;
  for (auto entry = jobs_.lower_bound(JobId(given));
       entry != jobs_.end() && absl::StartsWith(entry->first.value(), given); ++entry) {
    begun.push_back(&entry->second);
    // Ids begin with their job's name.
    if (entry->second.status.spec().name() == given) named.push_back(&entry->second);
  }
  const std::vector<const Job*>& matches = named.empty() ? begun : named;
  if (matches.size() == 1) return matches.front()->id();
  if (!matches.empty()) return Ambiguous(given, matches);
  return absl::NotFoundError(absl::StrCat("no job ", given, " (the coordinator keeps the newest ",
                                          context_.options.keep_jobs, " finished jobs)"));
}

absl::StatusOr<const Job*> JobTable::Get(const JobId& id) const {
  const Job* const job = Find(id);
  if (job == nullptr) return absl::NotFoundError(absl::StrCat("no job ", id.value()));
  return job;
}

std::vector<const Job*> JobTable::List(const v1::ListJobsRequest& request) const {
  std::vector<const Job*> chosen;
  for (const auto& [id, job] : jobs_) {
    if (request.state() != v1::JOB_STATE_UNSPECIFIED) {
      if (job.state() != request.state()) continue;
    } else if (IsTerminal(job.state()) && !request.include_finished()) {
      continue;
    }
    chosen.push_back(&job);
  }
  std::sort(chosen.begin(), chosen.end(),
            [](const Job* a, const Job* b) { return a->queue_sequence > b->queue_sequence; });
  if (request.limit() != 0 && chosen.size() > request.limit()) chosen.resize(request.limit());
  return chosen;
}

absl::flat_hash_set<std::string> JobTable::Files() const {
  absl::flat_hash_set<std::string> digests;
  for (const auto& [id, job] : jobs_) {
    for (const v1::FileSpec& file : job.spec().files()) digests.insert(file.sha256());
  }
  return digests;
}

// ------------------------------------------------------------------------------------------------
// life cycle

absl::StatusOr<JobTable::Submitted> JobTable::Submit(const SubmitJob& event) {
  if (!event.idempotency_key.empty()) {
    const auto made = idempotency_keys_.find(event.idempotency_key);
    if (made != idempotency_keys_.end()) {
      Job& job = jobs_.at(made->second);
      RETURN_IF_ERROR(CheckSameSpec(job, event));
      return Submitted{&job, true};
    }
  }
  if (event.job_id.value().empty()) return absl::InvalidArgumentError("job id is empty");
  if (event.idempotency_key.size() > limits::kIdempotencyKeyLength) {
    return absl::InvalidArgumentError(
        absl::StrCat("idempotency key has ", event.idempotency_key.size(),
                     " characters; the limit is ", limits::kIdempotencyKeyLength));
  }
  if (jobs_.count(event.job_id) != 0 || retention_.IsForgotten(event.job_id)) {
    return absl::AbortedError(absl::StrCat("job id ", event.job_id.value(), " is taken"));
  }
  if (jobs_.size() >= limits::kJobs && retention_.HasFinished()) {
    Remove(JobId(retention_.OldestFinished()));
  }
  if (jobs_.size() >= limits::kJobs) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the coordinator has ", limits::kJobs,
                     " unfinished jobs, the limit; wait for some to finish or cancel some"));
  }
  Job& job = jobs_[event.job_id];
  v1::Job& status = job.status;
  status.set_job_id(event.job_id.value());
  *status.mutable_spec() = event.spec;
  status.set_state(v1::QUEUED);
  status.set_reason(reasons::kWaitingForResources);
  status.set_message("waiting in the queue for resources");
  status.set_idempotency_key(event.idempotency_key);
  status.set_owner(event.actor.name);
  SetSharedCheckpointDir(context_.options.checkpoint_dir, status);
  *status.mutable_submit_time() = ToProto(context_.now.wall);
  job.queue_sequence = next_queue_sequence_++;
  job.submitted_digest = event.spec_digest;
  job.state_since = context_.now.steady;
  if (!event.idempotency_key.empty()) {
    idempotency_keys_.emplace(event.idempotency_key, event.job_id);
  }
  context_.stats.OnSubmitted();
  AddEvent(job, events::kSubmitted, absl::StrCat("submitted as ", event.spec.name()));
  return Submitted{&job, false};
}

void JobTable::Transition(Job& job, v1::JobState to, absl::string_view reason,
                          std::string message) {
  CHECK(IsAllowed(job.state(), to))
      << job.id() << " cannot go from " << v1::JobState_Name(job.state()) << " to "
      << v1::JobState_Name(to);
  job.status.set_state(to);
  job.state_since = context_.now.steady;
  SetReason(job, reason, std::move(message));
}

void JobTable::SetReason(Job& job, absl::string_view reason, std::string message) {
  job.status.set_reason(std::string(reason));
  job.status.set_message(std::move(message));
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
  status.set_generation(record.generation());
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
  job.generation_start_time = context_.now.wall;
  job.ending = Ending();
  job.suspected_failure.reset();
  job.generation.emplace(std::move(record), context_.now.steady);
  active_.insert(job.id());
  MarkGeneration(job);
  for (int node_rank = 0; node_rank < job.generation->record.nodes_size(); ++node_rank) {
    MarkPlacement(job, node_rank);
  }
}

const v1::GenerationRecord& JobTable::EndGeneration(Job& job) {
  job.generation->record.set_over(true);
  job.run_time += std::max(context_.now.wall - job.generation_start_time, absl::ZeroDuration());
  MarkGeneration(job);
  MarkJob(job);
  v1::GenerationRecord record = std::move(job.generation->record);
  job.generation.reset();
  active_.erase(job.id());
  return job.past[Generation(record.generation())] = std::move(record);
}

void JobTable::Finish(Job& job, v1::JobState state, absl::string_view reason, std::string message,
                      int exit_code) {
  job.restarting = false;
  job.status.set_exit_code(exit_code);
  *job.status.mutable_finish_time() = ToProto(context_.now.wall);
  retention_.AddFinished(FromProto(job.status.finish_time()), job.id());
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
  job.events.push_back(std::move(event));
  while (job.events.size() > limits::kEventsPerJob) {
    context_.effects.writes.push_back(DeleteEvent(job.id(), job.events.front().sequence()));
    job.events.pop_front();
  }
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
  next_queue_sequence_ = std::max(next_queue_sequence_, job.queue_sequence + 1);
  if (!job.status.idempotency_key().empty()) {
    idempotency_keys_.emplace(job.status.idempotency_key(), id);
  }
  if (IsTerminal(job.state())) retention_.AddFinished(FromProto(job.status.finish_time()), id);
  if (job.generation.has_value()) active_.insert(id);
  return job;
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
    writes.push_back(Put(ToRecord(jobs_.at(id))));
  }
  for (const auto& [id, number] : std::exchange(dirty_generations_, {})) {
    writes.push_back(PutGeneration(RecordOf(id, number)));
  }
  for (const auto& [id, number, node_rank] : std::exchange(dirty_placements_, {})) {
    writes.push_back(PutPlacement(RecordOf(id, number), node_rank));
  }
  context_.effects.changed_jobs.assign(changed_.begin(), changed_.end());
  changed_.clear();
}

// ------------------------------------------------------------------------------------------------
// retention

void JobTable::ForgetDue() {
  size_t left = kDeletionsPerStep;
  while (left > 0) {
    if (!retention_.HasForgotten()) {
      if (retention_.NextDue() > context_.now.wall) return;
      Remove(JobId(retention_.OldestFinished()));
    }
    left -= retention_.TakeDeletions(left, context_.effects.writes);
  }
}

void JobTable::Remove(const JobId& id) {
  const auto entry = jobs_.find(id);
  const Job& job = entry->second;
  MarkChanged(job);
  context_.effects.writes.push_back(PutForgotten(id));
  std::vector<std::string> keys = KeysOf(job);
  for (std::string& tail : log_tails_.Remove(job)) keys.push_back(std::move(tail));
  retention_.AddForgotten(id, std::move(keys));
  const auto key = idempotency_keys_.find(job.status.idempotency_key());
  if (key != idempotency_keys_.end() && key->second == id) idempotency_keys_.erase(key);
  retention_.RemoveFinished(FromProto(job.status.finish_time()), id);
  jobs_.erase(entry);
}

void JobTable::ArmRetention() {
  const TimerKey key{TimerKey::Kind::kRetention, ""};
  const absl::Time due = retention_.NextDue();
  if (retention_.HasForgotten()) {
    context_.timers.Set(key, context_.now.steady);
  } else if (due == absl::InfiniteFuture()) {
    context_.timers.Cancel(key);
  } else {
    context_.timers.Set(
        key, context_.now.steady + std::max(due - context_.now.wall, absl::ZeroDuration()));
  }
}

}  // namespace muster::core
