#include "coordinator/core/requests.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/core/reasons.h"

namespace muster::core {

void Requests::Handle(const SubmitJob& event) {
  const absl::StatusOr<JobTable::Submitted> submitted = jobs_.Submit(event);
  if (!submitted.ok()) {
    ReplyError(event.request, submitted.status());
    return;
  }
  Job& job = *submitted->job;
  if (!submitted->already_existed) {
    const JobArray* const array = jobs_.arrays().Find(job.status.array_id());
    if (array == nullptr) {
      admission_.Enter(job);
    } else {
      for (const uint32_t index : array->tasks)
        admission_.Enter(jobs_.at(TaskId(array->id, index)));
    }
  }
  ReplyLater(event.request, job.id(), submitted->already_existed);
}

void Requests::Handle(const CancelJob& event) {
  Job* const job = FindFor(event.request, event.job_id, event.actor);
  if (job == nullptr) return;
  ReplyLater(event.request, event.job_id);
  life_cycle_.Cancel(*job, event.grace_period, event.actor);
}

void Requests::Handle(const CancelArray& event) {
  const JobArray* const array = jobs_.arrays().Find(event.array_id);
  if (array == nullptr) {
    return ReplyError(event.request,
                      absl::NotFoundError(absl::StrCat("no array of jobs ", event.array_id)));
  }
  // All tasks have the same owner.
  const JobId first = TaskId(array->id, *array->tasks.begin());
  absl::Status owned = CheckOwner(jobs_.at(first).status, event.actor);
  if (!owned.ok()) return ReplyError(event.request, std::move(owned));
  ReplyLater(event.request, first);
  // The last ones first, because the first ones would give their places to them.
  const std::vector<uint32_t> tasks(array->tasks.rbegin(), array->tasks.rend());
  for (const uint32_t index : tasks) {
    life_cycle_.Cancel(jobs_.at(TaskId(event.array_id, index)), event.grace_period, event.actor);
  }
}

void Requests::Handle(const HoldJob& event) {
  Job* const job = FindFor(event.request, event.job_id, event.actor);
  if (job == nullptr) return;
  if (job->state() == v1::QUEUED) {
    life_cycle_.Hold(*job, event.actor);
  } else if (job->state() != v1::HELD) {
    ReplyError(event.request,
               absl::FailedPreconditionError(absl::StrCat("job ", event.job_id.value(), " is ",
                                                          v1::JobState_Name(job->state()),
                                                          "; only a QUEUED job can be held")));
    return;
  }
  ReplyLater(event.request, event.job_id);
}

void Requests::Handle(const ReleaseJob& event) {
  Job* const job = FindFor(event.request, event.job_id, event.actor);
  if (job == nullptr) return;
  if (job->state() == v1::HELD) {
    life_cycle_.Release(*job, event.actor);
  } else if (job->state() != v1::QUEUED) {
    ReplyError(event.request,
               absl::FailedPreconditionError(absl::StrCat("job ", event.job_id.value(), " is ",
                                                          v1::JobState_Name(job->state()),
                                                          "; only a HELD job can be released")));
    return;
  }
  ReplyLater(event.request, event.job_id);
}

void Requests::Handle(const RequeueJob& event) {
  Job* const job = FindFor(event.request, event.job_id, event.actor);
  if (job == nullptr) return;
  const v1::JobState outcome = job->ending.outcome;
  const bool is_ending =
      job->state() == v1::STOPPING && outcome != v1::FAILED && outcome != v1::QUEUED;
  if (is_ending || job->state() == v1::HELD || IsTerminal(job->state())) {
    ReplyError(event.request,
               absl::FailedPreconditionError(absl::StrCat(
                   "job ", event.job_id.value(), " is ", v1::JobState_Name(job->state()),
                   is_ending ? absl::StrCat(" (will be ", v1::JobState_Name(outcome), ")") : "",
                   "; only a STARTING or RUNNING job can be requeued")));
    return;
  }
  if (job->state() != v1::QUEUED) {
    life_cycle_.StopAndRequeue(*job, reasons::kRequeuedByUser, DoneBy("requeued", event.actor));
  }
  ReplyLater(event.request, event.job_id);
}

void Requests::Handle(const CheckpointJob& event) {
  Job* const job = FindFor(event.request, event.job_id, event.actor);
  if (job == nullptr) return;
  absl::Status requested = checkpoints_.Request(*job, event.actor);
  if (!requested.ok()) return ReplyError(event.request, std::move(requested));
  ReplyLater(event.request, event.job_id);
}

void Requests::Handle(const ShareJob& event) {
  Job* const job = FindFor(event.request, event.job_id, event.actor);
  if (job == nullptr) return;
  if (job->status.shared() != event.shared) {
    job->status.set_shared(event.shared);
    jobs_.AddEvent(*job, event.shared ? events::kShared : events::kUnshared,
                   DoneBy(event.shared ? "shared" : "no longer shared", event.actor));
  }
  ReplyLater(event.request, event.job_id);
}

Job* Requests::FindFor(RequestId request, const JobId& id, const Actor& actor) {
  Job* const job = jobs_.Find(id);
  if (job == nullptr) {
    ReplyError(request, absl::NotFoundError(absl::StrCat("no job ", id.value())));
    return nullptr;
  }
  absl::Status owned = CheckOwner(job->status, actor);
  if (owned.ok()) return job;
  ReplyError(request, std::move(owned));
  return nullptr;
}

void Requests::ReplyError(RequestId request, absl::Status status) {
  context_.effects.replies.push_back({request, std::move(status), false});
}

void Requests::ReplyLater(RequestId request, const JobId& job, bool already_existed) {
  pending_.push_back({request, job, already_existed});
}

void Requests::Reply(const std::function<v1::Job(const Job&)>& view) {
  for (const PendingReply& reply : std::exchange(pending_, {})) {
    const Job& job = jobs_.at(reply.job);
    context_.effects.replies.push_back({reply.request, view(job), reply.already_existed});
    const JobArray* const array = jobs_.arrays().Find(job.status.array_id());
    if (array != nullptr) context_.effects.replies.back().array = array->View();
  }
}

}  // namespace muster::core
