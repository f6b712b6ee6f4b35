#include "coordinator/core/jobs/job_submission.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/limits.h"
#include "common/status.h"
#include "common/time/proto_time.h"
#include "coordinator/core/jobs/job_record.h"
#include "coordinator/core/jobs/job_time.h"
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
void SetSharedCheckpointDir(const std::string& of_cluster, const v1::JobSpec& spec, v1::Job& job) {
  std::string dir = spec.checkpoint_dir();
  if (dir.empty() && spec.train().checkpoint().dir().empty() && !of_cluster.empty()) {
    dir = absl::StrCat(of_cluster, "/", job.job_id());
  }
  if (dir.empty()) return;
  job.mutable_checkpoint()->set_dir(std::move(dir));
  job.mutable_checkpoint()->set_shared(true);
}

// The different specs of the jobs of a submission.
std::vector<const v1::JobSpec*> SpecsOf(const SubmitJob& event) {
  std::vector<const v1::JobSpec*> specs;
  if (event.tasks.empty()) specs.push_back(&event.spec);
  for (const spec::ArrayTask& task : event.tasks) {
    if (specs.empty() || specs.back() != task.spec.get()) specs.push_back(task.spec.get());
  }
  return specs;
}

constexpr absl::string_view kNode = "{node}";

// The absolute path in one spelling. Of a checkpoint (DIR/step-…) or a file of one, DIR.
std::string DirectoryOf(absl::string_view path) {
  std::vector<absl::string_view> folders;
  for (const absl::string_view folder : absl::StrSplit(path, '/', absl::SkipEmpty())) {
    if (folder == ".." && !folders.empty()) folders.pop_back();
    if (folder != "." && folder != "..") folders.push_back(folder);
  }
  for (size_t last = 1; last <= std::min<size_t>(2, folders.size()); ++last) {
    if (!absl::StartsWith(folders[folders.size() - last], "step-")) continue;
    folders.resize(folders.size() - last);
    break;
  }
  return absl::StrCat("/", absl::StrJoin(folders, "/"));
}

// Whether both name the same directory; `{node}` in one of them matches the name of any node.
bool IsSame(absl::string_view a, absl::string_view b) {
  if (a == b) return true;
  if (!absl::StrContains(a, kNode)) std::swap(a, b);
  const size_t at = a.find(kNode);
  if (at == a.npos) return false;
  const absl::string_view before = a.substr(0, at);
  const absl::string_view after = a.substr(at + kNode.size());
  return b.size() > before.size() + after.size() && absl::StartsWith(b, before) &&
         absl::EndsWith(b, after) &&
         !absl::StrContains(b.substr(at, b.size() - before.size() - after.size()), '/');
}

}  // namespace

void CheckpointPaths::AddPath(const char* field, const std::string& path, bool writes) {
  if (!path.empty()) paths_.emplace(DirectoryOf(path), Use{.field = field, .writes = writes});
}

void CheckpointPaths::Add(const v1::JobSpec& spec) {
  // The first use of a path counts, so that paths that are written come first.
  AddPath("checkpoint_dir", spec.checkpoint_dir(), /*writes=*/true);
  AddPath("train.checkpoint.dir", spec.train().checkpoint().dir(), /*writes=*/true);
  AddPath("train.checkpoint.resume_from", spec.train().checkpoint().resume_from(),
          /*writes=*/false);
  AddPath("train.init_from", spec.train().init_from(), /*writes=*/false);
}

void CheckpointPaths::Meet(const Job& job, const Actor& actor) {
  const bool may_use = MayUse(job.status, actor);
  for (const std::string* dir : {&job.status.checkpoint().dir(), &job.spec().checkpoint_dir(),
                                 &job.spec().train().checkpoint().dir()}) {
    if (dir->empty()) continue;
    const std::string normal = DirectoryOf(*dir);
    for (auto& [path, use] : paths_) {
      if (!IsSame(path, normal)) continue;
      use.allowed |= may_use || (job.status.shared() && !use.writes);
      use.job = job.status.job_id();
      use.owner = job.status.owner();
    }
  }
}

absl::Status CheckpointPaths::Check() const {
  for (const auto& [path, use] : paths_) {
    if (use.allowed || use.job.empty()) continue;
    return absl::PermissionDeniedError(absl::StrCat(
        use.field, ": ", path, " has the checkpoints of job ", use.job, " of ", use.owner,
        use.writes
            ? "; use another directory"
            : absl::StrCat("; ask an administrator to share them: muster admin share ", use.job)));
  }
  return absl::OkStatus();
}

absl::StatusOr<JobSubmission::Needs> JobSubmission::Examine(const SubmitJob& event) const {
  Needs needs;
  const JobId* const made = names_.FindKey({event.actor.name, event.idempotency_key});
  if (!event.idempotency_key.empty() && made != nullptr) {
    const Job* const job = jobs_.Find(*made);
    if (job == nullptr) {
      return absl::AlreadyExistsError(absl::StrCat(
          "idempotency key ", event.idempotency_key, " was already used for job ", made->value(),
          ", which has finished and was deleted to make room; to run it "
          "again, use a new key"));
    }
    RETURN_IF_ERROR(CheckSameSpec(*job, event));
    needs.existing = *made;
    return needs;
  }
  if (event.job_id.value().empty()) return absl::InvalidArgumentError("job id is empty");
  if (event.idempotency_key.size() > limits::kIdempotencyKeyLength) {
    return absl::InvalidArgumentError(
        absl::StrCat("idempotency key has ", event.idempotency_key.size(),
                     " characters; the limit is ", limits::kIdempotencyKeyLength));
  }
  RETURN_IF_ERROR(CheckIds(event));
  ASSIGN_OR_RETURN(needs.after, names_.ResolveDependencies(event.spec.after(), needs.ended));
  RETURN_IF_ERROR(CheckActor(event));
  needs.jobs = std::max<size_t>(event.tasks.size(), 1);
  const std::vector<const v1::JobSpec*> specs = SpecsOf(event);
  needs.shares_spec = needs.jobs > 1 && specs.size() == 1;
  const size_t sharing = needs.shares_spec ? needs.jobs : 1;
  for (const v1::JobSpec* const spec : specs) {
    needs.memory_bytes += sharing * MemoryOf(*spec, sharing);
    needs.stored += spec->ByteSizeLong();
  }
  // A step may write the records of all jobs again, for example when many nodes are lost.
  RETURN_IF_ERROR(context_.space.Check(needs.stored + eviction_.memory().used() / 2));
  RETURN_IF_ERROR(eviction_.CheckMemory(event.actor.name, needs.memory_bytes));
  RETURN_IF_ERROR(eviction_.CheckRoom(needs.jobs));
  return needs;
}

absl::StatusOr<JobSubmission::Submitted> JobSubmission::Submit(const SubmitJob& event) {
  ASSIGN_OR_RETURN(const Needs needs, Examine(event));
  if (needs.existing.has_value()) return Submitted{jobs_.Find(*needs.existing), true};
  RETURN_IF_ERROR(eviction_.MakeMemory(event.actor.name, needs.memory_bytes));
  eviction_.MakeRoom(needs.jobs);
  context_.space.Take(needs.stored);
  Job* first = nullptr;
  for (size_t i = 0; i < needs.jobs; ++i) {
    const bool is_task = !event.tasks.empty();
    const JobId id = is_task ? TaskId(event.job_id.value(), i) : event.job_id;
    Job made = MakeJob(
        event, id, is_task ? event.tasks[i].spec : std::make_shared<const v1::JobSpec>(event.spec));
    if (is_task) {
      made.status.set_array_id(event.job_id.value());
      made.status.set_array_index(i);
      made.status.set_array_count(needs.jobs);
      made.array_concurrency = event.spec.array().concurrency();
      *made.status.mutable_array_values() = {event.tasks[i].values.begin(),
                                             event.tasks[i].values.end()};
    }
    made.shares_spec = needs.shares_spec;
    if (i == 0 || !needs.shares_spec) {
      WriteSpec(made, context_.effects.writes);
    } else {
      made.spec_parts = first->spec_parts;
    }
    if (i == 0) made.status.set_idempotency_key(event.idempotency_key);
    made.after = needs.after;
    Job& job = jobs_.Add(std::move(made));
    if (i == 0) first = &job;
    states_.OnAdded(job, i == 0 ? needs.ended : std::vector<Ended>());
    context_.stats.Count("muster_jobs_submitted_total");
    jobs_.AddEvent(job, events::kSubmitted, absl::StrCat("submitted as ", job.spec().name()));
  }
  if (!event.idempotency_key.empty()) {
    names_.AddKey({event.actor.name, event.idempotency_key}, first->id());
  }
  return Submitted{first, false};
}

absl::Status JobSubmission::CheckActor(const SubmitJob& event) const {
  const size_t count = std::max<size_t>(event.tasks.size(), 1);
  RETURN_IF_ERROR(owners_.CheckSubmit(event.spec, event.actor, count));
  CheckpointPaths paths;
  // The matrix of an array may set what depends on the role of the token, and paths.
  for (const v1::JobSpec* const spec : SpecsOf(event)) {
    RETURN_IF_ERROR(owners_.CheckSubmit(*spec, event.actor, count));
    paths.Add(*spec);
  }
  if (paths.empty() || event.actor.is_admin) return absl::OkStatus();
  for (const auto& [id, job] : jobs_.all()) paths.Meet(job, event.actor);
  return paths.Check();
}

absl::Status JobSubmission::CheckIds(const SubmitJob& event) const {
  const auto taken = [this](const JobId& id) {
    return jobs_.Find(id) != nullptr || eviction_.IsForgotten(id);
  };
  bool any = taken(event.job_id) || jobs_.arrays().Find(event.job_id.value()) != nullptr;
  for (size_t i = 0; i < event.tasks.size() && !any; ++i) {
    any = taken(TaskId(event.job_id.value(), i));
  }
  if (!any) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat("job id ", event.job_id.value(), " is taken"));
}

Job JobSubmission::MakeJob(const SubmitJob& event, const JobId& id, spec::SharedSpec spec) const {
  Job job;
  v1::Job& status = job.status;
  status.set_job_id(id.value());
  SetSharedCheckpointDir(context_.options.checkpoint_dir, *spec, status);
  job.shared_spec = std::move(spec);
  status.set_state(v1::QUEUED);
  status.set_reason(reasons::kWaitingForResources);
  status.set_message(kWaitingMessage);
  status.set_owner(event.actor.name);
  *status.mutable_submit_time() = ToProto(context_.now.wall);
  job.submitted_digest = event.spec_digest;
  job.submitted = context_.now.steady;
  job.time_account = TimeAccount(job.is_train(), absl::ZeroDuration(), context_.now);
  return job;
}

Job& JobSubmission::Restore(Job restored) {
  if (restored.state() != v1::QUEUED && restored.state() != v1::HELD) {
    restored.after = After();  // earlier builds kept those of recovered jobs
  }
  Job& job = jobs_.Add(std::move(restored));
  RestoreTimeAccount(job, context_);
  if (!job.status.idempotency_key().empty()) {
    names_.AddKey({job.status.owner(), job.status.idempotency_key()}, job.id());
  }
  if (IsTerminal(job.state()) && job.status.array_id().empty()) eviction_.Allow(job, job.finished);
  states_.OnAdded(job);
  return job;
}

Job& JobSubmission::AddRecovered(Job recovered) {
  WriteSpec(recovered, context_.effects.writes);
  Job& job = Restore(std::move(recovered));
  jobs_.MarkJob(job);
  return job;
}

}  // namespace muster::core
