#include "coordinator/core/requests/job_requests.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/core/reasons.h"

namespace muster::core {
namespace {

// Checks that the job could write a checkpoint now.
absl::Status CheckTrains(const Job& job) {
  const std::string& id = job.status.job_id();
  if (!job.is_train()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "job ", id,
        " runs a command, which Muster cannot ask for a checkpoint; requeue the job if "
        "the command writes one on its stop signal"));
  }
  const v1::CheckpointSpec& spec = job.spec().train().checkpoint();
  if (spec.has_keep() && spec.keep() == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("job ", id, " writes no checkpoints: train.checkpoint.keep is 0"));
  }
  if (job.state() != v1::RUNNING || job.generation->ranks[0].gone()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "job ", id, " is ", v1::JobState_Name(job.state()),
        job.state() == v1::RUNNING ? ", but its rank 0 has ended" : "",
        "; only a training that is RUNNING can write a checkpoint: see muster why ", id));
  }
  return absl::OkStatus();
}

}  // namespace

void JobRequests::Handle(const SubmitJob& event) {
  const absl::StatusOr<JobSubmission::Submitted> submitted = jobs_.submission.Submit(event);
  if (!submitted.ok()) {
    ReplyError(event.request, submitted.status());
    return;
  }
  Job& job = *submitted->job;
  if (!submitted->already_existed) {
    const JobArray* const array = jobs_.table.arrays().Find(job.status.array_id());
    if (array == nullptr) {
      queueing_.Enter(job);
    } else {
      for (const uint32_t index : array->tasks)
        queueing_.Enter(jobs_.table.at(TaskId(array->id, index)));
    }
  }
  ReplyLater(event.request, job.id(), submitted->already_existed);
}

void JobRequests::Handle(const CancelJob& event) {
  Job* const job = FindFor(event.request, event.job, event.actor);
  if (job == nullptr) return;
  ReplyLater(event.request, job->id());
  life_cycle_.Cancel(*job, event.grace_period, event.actor);
}

void JobRequests::Handle(const CancelArray& event) {
  const absl::StatusOr<std::string> id = jobs_.names.ResolveArray(event.array);
  if (!id.ok()) return ReplyError(event.request, id.status());
  const JobArray* const array = jobs_.table.arrays().Find(*id);
  // All tasks have the same owner.
  const JobId first = TaskId(*id, *array->tasks.begin());
  absl::Status owned = CheckOwner(jobs_.table.at(first).status, event.actor);
  if (!owned.ok()) return ReplyError(event.request, std::move(owned));
  ReplyLater(event.request, first);
  // The last ones first, because the first ones would give their places to them.
  const std::vector<uint32_t> tasks(array->tasks.rbegin(), array->tasks.rend());
  for (const uint32_t index : tasks) {
    life_cycle_.Cancel(jobs_.table.at(TaskId(*id, index)), event.grace_period, event.actor);
  }
}

void JobRequests::Handle(const HoldJob& event) {
  Job* const job = FindFor(event.request, event.job, event.actor);
  if (job == nullptr) return;
  if (job->state() == v1::QUEUED) {
    queueing_.Hold(*job, event.actor);
  } else if (job->state() != v1::HELD) {
    ReplyError(event.request,
               absl::FailedPreconditionError(absl::StrCat("job ", job->id().value(), " is ",
                                                          v1::JobState_Name(job->state()),
                                                          "; only a QUEUED job can be held")));
    return;
  }
  ReplyLater(event.request, job->id());
}

void JobRequests::Handle(const ReleaseJob& event) {
  Job* const job = FindFor(event.request, event.job, event.actor);
  if (job == nullptr) return;
  if (job->state() == v1::HELD) {
    queueing_.Release(*job, event.actor);
  } else if (job->state() != v1::QUEUED) {
    ReplyError(event.request,
               absl::FailedPreconditionError(absl::StrCat("job ", job->id().value(), " is ",
                                                          v1::JobState_Name(job->state()),
                                                          "; only a HELD job can be released")));
    return;
  }
  ReplyLater(event.request, job->id());
}

void JobRequests::Handle(const RequeueJob& event) {
  Job* const job = FindFor(event.request, event.job, event.actor);
  if (job == nullptr) return;
  const v1::JobState outcome = job->ending.outcome;
  const bool is_ending =
      job->state() == v1::STOPPING && outcome != v1::FAILED && outcome != v1::QUEUED;
  if (is_ending || job->state() == v1::HELD || IsTerminal(job->state())) {
    ReplyError(event.request,
               absl::FailedPreconditionError(absl::StrCat(
                   "job ", job->id().value(), " is ", v1::JobState_Name(job->state()),
                   is_ending ? absl::StrCat(" (will be ", v1::JobState_Name(outcome), ")") : "",
                   "; only a STARTING or RUNNING job can be requeued")));
    return;
  }
  if (job->state() != v1::QUEUED) {
    life_cycle_.StopAndRequeue(*job, reasons::kRequeuedByUser, DoneBy("requeued", event.actor));
  }
  ReplyLater(event.request, job->id());
}

void JobRequests::Handle(const CheckpointJob& event) {
  Job* const job = FindFor(event.request, event.job, event.actor);
  if (job == nullptr) return;
  absl::Status requested = RequestCheckpoint(*job, event.actor);
  if (!requested.ok()) return ReplyError(event.request, std::move(requested));
  ReplyLater(event.request, job->id());
}

absl::Status JobRequests::RequestCheckpoint(Job& job, const Actor& actor) {
  absl::Status trains = CheckTrains(job);
  if (!trains.ok()) return trains;
  const GenerationState& generation = *job.generation;
  const v1::NodePlacement& placement = generation.placement(generation.ranks[0].node_rank);
  const Node& node = nodes_.at(NodeName(placement.node()));
  const bool is_connected = node.session.has_value() && node.conflict.empty() &&
                            node.record.incarnation() == placement.incarnation();
  if (!is_connected) {
    return absl::UnavailableError(absl::StrCat("node ", placement.node(),
                                               ", which runs rank 0 of job ", job.status.job_id(),
                                               ", is not connected; try again"));
  }
  v1::CoordinatorMessage message;
  message.mutable_checkpoint()->set_job_id(job.status.job_id());
  message.mutable_checkpoint()->set_generation(generation.record.generation());
  nodes_.Send(node, std::move(message));
  jobs_.table.AddEvent(job, events::kCheckpointRequested, DoneBy("checkpoint requested", actor));
  return absl::OkStatus();
}

void JobRequests::Handle(const ShareJob& event) {
  Job* const job = FindFor(event.request, event.job, event.actor);
  if (job == nullptr) return;
  if (job->status.shared() != event.shared) {
    job->status.set_shared(event.shared);
    jobs_.table.AddEvent(*job, event.shared ? events::kShared : events::kUnshared,
                         DoneBy(event.shared ? "shared" : "no longer shared", event.actor));
  }
  ReplyLater(event.request, job->id());
}

void JobRequests::Handle(const RemoveJob& event) {
  Job* const job = FindFor(event.request, event.job, event.actor);
  if (job == nullptr) return;
  absl::Status removable = CheckRemovable(*job);
  if (!removable.ok()) return ReplyError(event.request, std::move(removable));
  context_.effects.replies.push_back({event.request, job->status, false});
  context_.Log(DoneBy(absl::StrCat("job ", job->id().value(), " was removed"), event.actor));
  DeleteFiles(*job);
  jobs_.eviction.Remove(JobId(job->id()));
}

absl::Status JobRequests::CheckRemovable(const Job& job) const {
  const std::string& id = job.status.job_id();
  const JobArray* const array = jobs_.table.arrays().Find(job.status.array_id());
  if (array != nullptr && !array->ended()) {
    return absl::FailedPreconditionError(
        absl::StrCat("job ", id, " is a task of array ", array->id,
                     ", which has not ended; only its tasks can be cancelled"));
  }
  if (IsTerminal(job.state())) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("job ", id, " is ", v1::JobState_Name(job.state()),
                   "; only a finished job can be removed: muster cancel ", id));
}

void JobRequests::DeleteFiles(const Job& job) {
  std::map<std::string, Generation> newest;  // by node
  for (const auto& [number, record] : job.past) {
    for (const v1::NodePlacement& placement : record.nodes()) newest[placement.node()] = number;
  }
  for (const auto& [name, number] : newest) {
    const Node* const node = nodes_.Find(NodeName(name));
    if (node == nullptr) continue;
    v1::ForgetGeneration forget;
    forget.set_job_id(job.status.job_id());
    forget.set_generation(number.value());
    forget.set_delete_files(true);
    nodes_.SendForget(*node, std::move(forget));
  }
}

Job* JobRequests::FindFor(RequestId request, const std::string& name, const Actor& actor) {
  const absl::StatusOr<JobId> id = jobs_.names.Resolve(name);
  if (!id.ok()) {
    ReplyError(request, id.status());
    return nullptr;
  }
  Job& job = jobs_.table.at(*id);
  absl::Status owned = CheckOwner(job.status, actor);
  if (owned.ok()) return &job;
  ReplyError(request, std::move(owned));
  return nullptr;
}

void JobRequests::ReplyError(RequestId request, absl::Status status) {
  context_.effects.replies.push_back({request, std::move(status), false});
}

void JobRequests::ReplyLater(RequestId request, const JobId& job, bool already_existed) {
  pending_.push_back({request, job, already_existed});
}

void JobRequests::Reply(const std::function<v1::Job(const Job&)>& view) {
  for (const PendingReply& reply : std::exchange(pending_, {})) {
    const Job& job = jobs_.table.at(reply.job);
    context_.effects.replies.push_back({reply.request, view(job), reply.already_existed});
    const JobArray* const array = jobs_.table.arrays().Find(job.status.array_id());
    if (array != nullptr) context_.effects.replies.back().array = array->View();
  }
}

}  // namespace muster::core
