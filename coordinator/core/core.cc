#include "coordinator/core/core.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/limits.h"
#include "common/proto_time.h"
#include "coordinator/core/core_impl.h"
#include "coordinator/core/reasons.h"
#include "coordinator/core/records.h"

namespace muster::core {

Core::Core(Options options) : impl_(std::make_unique<Impl>(std::move(options))) {}
Core::~Core() = default;

absl::StatusOr<Effects> Core::Load(absl::Span<const store::Record> records, Time now) {
  return impl_->Load(records, now);
}
Effects Core::Step(const Event& event, Time now) { return impl_->Step(event, now); }
SteadyTime Core::NextDeadline() const { return impl_->NextDeadline(); }
absl::StatusOr<JobId> Core::ResolveJob(absl::string_view name) const {
  return impl_->ResolveJob(name);
}
absl::StatusOr<v1::Job> Core::GetJob(const JobId& job, bool detailed, Time now) const {
  return impl_->GetJob(job, detailed, now);
}
std::vector<v1::Job> Core::ListJobs(const v1::ListJobsRequest& request, Time now) const {
  return impl_->ListJobs(request, now);
}
absl::StatusOr<std::vector<v1::JobEvent>> Core::ListEvents(const JobId& job, uint64_t after) const {
  return impl_->ListEvents(job, after);
}
std::vector<v1::Node> Core::ListNodes(Time now) const { return impl_->ListNodes(now); }
absl::StatusOr<v1::Node> Core::GetNode(const NodeName& name, Time now) const {
  return impl_->GetNode(name, now);
}
std::vector<LiveWait> Core::ListWaits() const { return impl_->ListWaits(); }
absl::StatusOr<Core::RankLocation> Core::FindRank(const JobId& job, Generation generation,
                                                  Rank rank) const {
  return impl_->FindRank(job, generation, rank);
}
Stats Core::TakeStats() { return impl_->TakeStats(); }

Effects Core::Impl::Step(const Event& event, Time now) {
  now_ = now;
  ForgetJobs();
  std::visit([this](const auto& fact) { Handle(fact); }, event);
  return FinishStep();
}

Effects Core::Impl::FinishStep() {
  RunQueue();
  for (const JobId& id : dirty_jobs_) {
    v1::JobRecord record = jobs_.at(id).record;
    record.mutable_job()->clear_progress();
    effects_.writes.push_back(Put(record));
  }
  for (const auto& [id, generation] : dirty_generations_) {
    effects_.writes.push_back(PutGeneration(RecordOf(id, generation)));
  }
  for (const auto& [id, generation, node_rank] : dirty_placements_) {
    effects_.writes.push_back(PutPlacement(RecordOf(id, generation), node_rank));
  }
  for (const NodeName& name : dirty_nodes_) {
    const Node* node = FindNode(name);
    effects_.writes.push_back(node == nullptr ? DeleteNode(name) : Put(node->record));
  }
  for (const PendingReply& reply : pending_replies_) {
    effects_.replies.push_back({reply.request, View(jobs_.at(reply.job), /*detailed=*/false, now_),
                                reply.already_existed});
  }
  effects_.changed_jobs.assign(changed_.begin(), changed_.end());
  dirty_jobs_.clear();
  dirty_generations_.clear();
  dirty_placements_.clear();
  dirty_nodes_.clear();
  pending_replies_.clear();
  changed_.clear();
  ArmRetention();
  return std::exchange(effects_, Effects());
}

// --------------------------------------------------------------------------------------------
// requests of clients

void Core::Impl::Handle(const SubmitJob& event) {
  if (!event.idempotency_key.empty()) {
    const auto made = idempotency_keys_.find(event.idempotency_key);
    if (made != idempotency_keys_.end()) {
      ReplyWithJob(event.request, made->second, /*already_existed=*/true);
      return;
    }
  }
  if (event.job_id.value().empty() ||
      event.idempotency_key.size() > limits::kIdempotencyKeyLength) {
    ReplyWith(event.request, absl::InvalidArgumentError(absl::StrCat(
                                 "an idempotency key has at most ", limits::kIdempotencyKeyLength,
                                 " characters, and a job an id")));
    return;
  }
  if (jobs_.count(event.job_id) != 0 || forgotten_.count(event.job_id) != 0) {
    ReplyWith(event.request,
              absl::AlreadyExistsError(absl::StrCat("job id ", event.job_id.value(), " is taken")));
    return;
  }
  if (jobs_.size() >= limits::kJobs && !finished_.empty()) Forget(finished_.begin()->second);
  if (jobs_.size() >= limits::kJobs) {
    ReplyWith(event.request,
              absl::ResourceExhaustedError(absl::StrCat(
                  "the coordinator has ", limits::kJobs,
                  " jobs that are not over, and takes no more: wait for some, or cancel them")));
    return;
  }
  Job& job = jobs_[event.job_id];
  v1::Job& proto = *job.record.mutable_job();
  proto.set_job_id(event.job_id.value());
  *proto.mutable_spec() = event.spec;
  proto.set_state(v1::QUEUED);
  proto.set_reason(reasons::kWaitingForResources);
  proto.set_message("waits for its turn and for resources");
  proto.set_idempotency_key(event.idempotency_key);
  *proto.mutable_submit_time() = ToProto(now_.wall);
  job.record.set_queue_sequence(next_queue_sequence_++);
  job.record.set_next_event_sequence(1);
  job.state_since = now_.steady;
  if (!event.idempotency_key.empty()) {
    idempotency_keys_.emplace(event.idempotency_key, event.job_id);
  }
  queue_.Add(job.record);
  capacity_changed_ = true;
  stats_.OnSubmitted();
  AddEvent(job, events::kSubmitted, absl::StrCat("submitted as ", event.spec.name()));
  ReplyWithJob(event.request, event.job_id);
}

void Core::Impl::Handle(const CancelJob& event) {
  Job* job = FindJob(event.job_id);
  if (job == nullptr) {
    ReplyWith(event.request, absl::NotFoundError(absl::StrCat("no job ", event.job_id.value())));
    return;
  }
  ReplyWithJob(event.request, event.job_id);
  constexpr char kMessage[] = "cancelled by its user";
  const absl::Duration grace =
      event.grace_period.value_or(FromProto(job->job().spec().grace_period()));
  switch (job->state()) {
    case v1::QUEUED:
    case v1::HELD:
      Finish(*job, v1::CANCELLED, reasons::kCancelledByUser, kMessage, 1);
      break;
    case v1::STARTING:
    case v1::RUNNING:
      Stop(*job, v1::CANCELLED, reasons::kCancelledByUser, kMessage, grace, /*abort=*/false);
      CheckStopped(*job);
      break;
    case v1::STOPPING:
      if (job->record.outcome() == v1::FAILED || job->record.outcome() == v1::QUEUED) {
        job->record.set_outcome(v1::CANCELLED);
        job->record.set_outcome_reason(reasons::kCancelledByUser);
        job->record.set_outcome_message(kMessage);
        job->record.mutable_job()->set_reason(reasons::kCancelledByUser);
        job->record.mutable_job()->set_message(kMessage);
        MarkJob(*job);
      }
      if (event.grace_period.has_value() && grace < FromProto(job->record.stop_grace_period())) {
        *job->record.mutable_stop_grace_period() = ToProto(grace);
        MarkJob(*job);
        for (const auto& [name, node_rank] : job->generation->node_ranks) {
          SyncNode(*job, node_rank, /*launch=*/false);
        }
      }
      break;
    default:
      break;  // over: answered with it
  }
}

void Core::Impl::Handle(const HoldJob& event) {
  Job* job = FindJob(event.job_id);
  if (job == nullptr) {
    ReplyWith(event.request, absl::NotFoundError(absl::StrCat("no job ", event.job_id.value())));
    return;
  }
  if (job->state() == v1::QUEUED) {
    queue_.Remove(event.job_id);
    capacity_changed_ = true;  // for those behind it
    AddEvent(*job, events::kHeld, "held by its user");
    Transition(*job, v1::HELD, reasons::kHeldByUser, "held by its user");
  } else if (job->state() != v1::HELD) {
    ReplyWith(event.request, absl::FailedPreconditionError(absl::StrCat(
                                 "job ", event.job_id.value(), " is ",
                                 v1::JobState_Name(job->state()), "; only a QUEUED one is held")));
    return;
  }
  ReplyWithJob(event.request, event.job_id);
}

void Core::Impl::Handle(const ReleaseJob& event) {
  Job* job = FindJob(event.job_id);
  if (job == nullptr) {
    ReplyWith(event.request, absl::NotFoundError(absl::StrCat("no job ", event.job_id.value())));
    return;
  }
  if (job->state() == v1::HELD) {
    queue_.Add(job->record);
    capacity_changed_ = true;
    AddEvent(*job, events::kReleased, "released by its user");
    Transition(*job, v1::QUEUED, reasons::kWaitingForResources,
               "waits for its turn and for resources");
  } else if (job->state() != v1::QUEUED) {
    ReplyWith(event.request,
              absl::FailedPreconditionError(absl::StrCat("job ", event.job_id.value(), " is ",
                                                         v1::JobState_Name(job->state()),
                                                         "; only a HELD one is released")));
    return;
  }
  ReplyWithJob(event.request, event.job_id);
}

void Core::Impl::Handle(const RequeueJob& event) {
  Job* job = FindJob(event.job_id);
  if (job == nullptr) {
    ReplyWith(event.request, absl::NotFoundError(absl::StrCat("no job ", event.job_id.value())));
    return;
  }
  const bool is_ending = job->state() == v1::STOPPING && job->record.outcome() != v1::FAILED &&
                         job->record.outcome() != v1::QUEUED;
  if (is_ending || job->state() == v1::HELD || IsTerminal(job->state())) {
    ReplyWith(
        event.request,
        absl::FailedPreconditionError(absl::StrCat(
            "job ", event.job_id.value(), " is ", v1::JobState_Name(job->state()),
            is_ending ? absl::StrCat(" to be ", v1::JobState_Name(job->record.outcome())) : "",
            "; only a STARTING or RUNNING one is requeued")));
    return;
  }
  if (job->state() != v1::QUEUED) {
    StopAndRequeue(*job, reasons::kRequeuedByUser, "requeued by its user");
  }
  ReplyWithJob(event.request, event.job_id);
}

// ----------------------------------------------------------------------------------------------------------
// time

void Core::Impl::Handle(const Tick& event) {
  // Lateness that every loop has is not made up for: deadlines would recede for ever.
  if (event.lag > options_.heartbeat_interval / 4) timers_.ExtendAll(event.lag);
  for (const TimerKey& key : timers_.TakeDue(now_.steady)) {
    if (key.kind == TimerKey::Kind::kLease) {
      Node* node = FindNode(NodeName(key.name));
      if (node == nullptr || node->state == v1::LOST) continue;
      LoseNode(*node, absl::StrCat("no word from it for ",
                                   absl::FormatDuration(absl::Trunc(now_.steady - node->last_heard,
                                                                    absl::Milliseconds(100)))));
      continue;
    }
    if (key.kind == TimerKey::Kind::kPlacement) {
      capacity_changed_ = true;
      continue;
    }
    Job* job = FindJob(JobId(key.name));
    if (job == nullptr || !IsActive(job->state())) continue;
    switch (key.kind) {
      case TimerKey::Kind::kCause:
        Attribute(*job, /*final=*/true);
        break;
      case TimerKey::Kind::kRendezvous:
        OnRendezvousTimeout(*job);
        break;
      case TimerKey::Kind::kTimeLimit:
        OnTimeLimit(*job);
        break;
      case TimerKey::Kind::kWait:
        OnWaitTimer(*job);
        break;
      case TimerKey::Kind::kLease:
      case TimerKey::Kind::kPlacement:
      case TimerKey::Kind::kRetention:  // done with the step's beginning
        break;
    }
  }
}

// --------------------------------------------------------------------------------------------------
// small helpers

Job* Core::Impl::FindJob(const JobId& id) {
  const auto entry = jobs_.find(id);
  return entry == jobs_.end() ? nullptr : &entry->second;
}

Node* Core::Impl::FindNode(const NodeName& name) {
  const auto entry = nodes_.find(name);
  return entry == nodes_.end() ? nullptr : &entry->second;
}

GenerationState* Core::Impl::FindGeneration(Job* job, uint64_t generation, const NodeName& node) {
  if (job == nullptr || !job->generation.has_value()) return nullptr;
  if (job->generation->record.generation() != generation) return nullptr;
  return job->generation->NodeRank(node).has_value() ? &*job->generation : nullptr;
}

void Core::Impl::MarkJob(const Job& job) {
  dirty_jobs_.insert(job.id());
  MarkChanged(job);
}

void Core::Impl::MarkGeneration(const Job& job) {
  dirty_generations_.emplace(job.id(), Generation(job.generation->record.generation()));
  MarkChanged(job);
}

void Core::Impl::MarkPlacement(const Job& job, uint32_t node_rank) {
  dirty_placements_.emplace(job.id(), Generation(job.generation->record.generation()), node_rank);
  MarkChanged(job);
}

const v1::GenerationRecord& Core::Impl::RecordOf(const JobId& id, Generation number) const {
  const Job& job = jobs_.at(id);
  const bool lives =
      job.generation.has_value() && Generation(job.generation->record.generation()) == number;
  return lives ? job.generation->record : job.past.at(number);
}

void Core::Impl::AddEvent(Job& job, absl::string_view type, std::string message) {
  v1::EventRecord record;
  v1::JobEvent& event = *record.mutable_event();
  event.set_job_id(job.job().job_id());
  event.set_sequence(job.record.next_event_sequence());
  *event.mutable_time() = ToProto(now_.wall);
  event.set_generation(job.job().generation());
  event.set_type(std::string(type));
  event.set_message(std::move(message));
  job.record.set_next_event_sequence(event.sequence() + 1);
  MarkJob(job);
  effects_.writes.push_back(Put(record));
  job.events.push_back(std::move(event));
  while (job.events.size() > limits::kEventsPerJob) {
    effects_.writes.push_back(DeleteEvent(job.id(), job.events.front().sequence()));
    job.events.pop_front();
  }
}

void Core::Impl::SendTo(const Node& node, v1::CoordinatorMessage message) {
  if (node.session.has_value()) effects_.sends.push_back({*node.session, std::move(message)});
}

void Core::Impl::Close(SessionId session, absl::Status status) {
  sessions_.erase(session);
  effects_.closes.push_back({session, std::move(status)});
}

void Core::Impl::ReplyWith(RequestId request, absl::Status status) {
  effects_.replies.push_back({request, std::move(status), false});
}

void Core::Impl::ReplyWithJob(RequestId request, const JobId& job, bool already_existed) {
  pending_replies_.push_back({request, job, already_existed});
}

}  // namespace muster::core
