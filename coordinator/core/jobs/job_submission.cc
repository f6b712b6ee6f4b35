// JobTable: adds the jobs that clients submit.
#include <algorithm>
#include <iterator>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/proto_time.h"
#include "common/status.h"
#include "coordinator/core/jobs/checkpoint_paths.h"
#include "coordinator/core/jobs/job_table.h"
#include "coordinator/core/reasons.h"

namespace muster::core {
namespace {

constexpr char kWaitingMessage[] = "waiting in the queue for resources";

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

absl::StatusOr<JobTable::Submitted> JobTable::Submit(const SubmitJob& event) {
  if (!event.idempotency_key.empty()) {
    const auto made = idempotency_keys_.find({event.actor.name, event.idempotency_key});
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
  RETURN_IF_ERROR(CheckIds(event));
  std::vector<Ended> ended;
  ASSIGN_OR_RETURN(After after, ResolveDependencies(event.spec.after(), ended));
  const size_t count = std::max<size_t>(event.tasks.size(), 1);
  RETURN_IF_ERROR(CheckSubmit(event.spec, event.tasks, event.actor));
  std::vector<size_t> memory(count);
  uint64_t stored = 0;
  for (size_t i = 0; i < count; ++i) {
    const v1::JobSpec& spec = event.tasks.empty() ? event.spec : event.tasks[i].spec;
    memory[i] = MemoryOf(spec);
    stored += spec.ByteSizeLong();
  }
  // A step may write the records of all jobs again, for example when many nodes are lost.
  RETURN_IF_ERROR(context_.space.Check(stored + memory_.used() / 2));
  RETURN_IF_ERROR(
      MakeMemory(event.actor.name, std::accumulate(memory.begin(), memory.end(), size_t{0})));
  RETURN_IF_ERROR(MakeRoom(count));
  context_.space.Take(stored);
  Job* first = nullptr;
  for (size_t i = 0; i < count; ++i) {
    const bool is_task = !event.tasks.empty();
    const JobId id = is_task ? TaskId(event.job_id.value(), i) : event.job_id;
    Job& job = AddSubmitted(event, id, is_task ? event.tasks[i].spec : event.spec, memory[i]);
    if (is_task) {
      job.status.set_array_id(event.job_id.value());
      job.status.set_array_index(i);
      job.status.set_array_count(count);
      job.array_concurrency = event.spec.array().concurrency();
      for (const v1::ArrayValue& value : event.tasks[i].values) {
        *job.status.add_array_values() = value;
      }
    }
    job.after = after;
    arrays_.Add(job);
    dependents_.Add(job);
    if (i > 0) continue;
    first = &job;
    job.status.set_idempotency_key(event.idempotency_key);
  }
  if (!event.idempotency_key.empty()) {
    idempotency_keys_.emplace(std::make_pair(event.actor.name, event.idempotency_key), first->id());
  }
  std::move(ended.begin(), ended.end(), std::back_inserter(ended_));
  return Submitted{first, false};
}

absl::Status JobTable::CheckSubmit(const v1::JobSpec& spec, const std::vector<ArrayTask>& tasks,
                                   const Actor& actor) const {
  const size_t count = std::max<size_t>(tasks.size(), 1);
  RETURN_IF_ERROR(owners_.CheckSubmit(spec, actor, count));
  CheckpointPaths paths;
  if (tasks.empty()) paths.Add(spec);
  // The matrix of an array may set what depends on the role of the token, and paths.
  for (const ArrayTask& task : tasks) {
    RETURN_IF_ERROR(owners_.CheckSubmit(task.spec, actor, count));
    paths.Add(task.spec);
  }
  if (paths.empty() || actor.is_admin) return absl::OkStatus();
  for (const auto& [id, job] : jobs_) paths.Meet(job.status, actor);
  return paths.Check();
}

absl::Status JobTable::CheckIds(const SubmitJob& event) const {
  const auto taken = [this](const JobId& id) {
    return jobs_.count(id) != 0 || retention_.IsForgotten(id);
  };
  bool any = taken(event.job_id) || arrays_.Find(event.job_id.value()) != nullptr;
  for (size_t i = 0; i < event.tasks.size() && !any; ++i) {
    any = taken(TaskId(event.job_id.value(), i));
  }
  if (!any) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat("job id ", event.job_id.value(), " is taken"));
}

absl::Status JobTable::MakeRoom(size_t count) {
  while (jobs_.size() + count > limits::kJobs && retention_.HasFinished()) {
    Remove(JobId(retention_.OldestFinished()));
  }
  if (jobs_.size() + count <= limits::kJobs) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      count == 1
          ? absl::StrCat("the coordinator has ", limits::kJobs,
                         " unfinished jobs, the limit; wait for some to finish or cancel some")
          : absl::StrCat("the coordinator has ", jobs_.size(), " unfinished jobs, and ", count,
                         " more exceed the limit of ", limits::kJobs,
                         "; wait for some to finish or cancel some"));
}

absl::Status JobTable::MakeMemory(const std::string& owner, size_t bytes) {
  while (true) {
    absl::Status room = memory_.Check(owner, bytes);
    const JobId* evicted = room.ok() ? nullptr : retention_.OldestFinishedOf(owner);
    if (!room.ok() && evicted == nullptr && retention_.HasFinished() &&
        memory_.OwnerHasRoom(owner, bytes)) {
      evicted = &retention_.OldestFinished();
    }
    if (evicted == nullptr) return room;
    Remove(JobId(*evicted));
  }
}

Job& JobTable::AddSubmitted(const SubmitJob& event, const JobId& id, const v1::JobSpec& spec,
                            size_t memory_bytes) {
  Job& job = jobs_[id];
  v1::Job& status = job.status;
  status.set_job_id(id.value());
  *status.mutable_spec() = spec;
  status.set_state(v1::QUEUED);
  status.set_reason(reasons::kWaitingForResources);
  status.set_message(kWaitingMessage);
  status.set_owner(event.actor.name);
  Charge(job, memory_bytes);
  SetSharedCheckpointDir(context_.options.checkpoint_dir, status);
  *status.mutable_submit_time() = ToProto(context_.now.wall);
  job.queue_sequence = next_queue_sequence_++;
  job.submitted_digest = event.spec_digest;
  job.submitted = job.state_since = context_.now.steady;
  job.time_account = TimeAccount(job.is_train(), absl::ZeroDuration(), context_.now);
  owners_.OnQueued(status);
  context_.stats.OnSubmitted();
  AddEvent(job, events::kSubmitted, absl::StrCat("submitted as ", spec.name()));
  return job;
}

}  // namespace muster::core
