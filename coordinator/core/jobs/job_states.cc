#include "coordinator/core/jobs/job_states.h"

#include <glog/logging.h>

#include <algorithm>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/text/utf8.h"
#include "common/time/proto_time.h"
#include "coordinator/core/jobs/job_time.h"
#include "coordinator/core/reasons.h"

namespace muster::core {
namespace {

bool IsWaiting(v1::JobState state) { return state == v1::QUEUED || state == v1::HELD; }

}  // namespace

void JobStates::Transition(Job& job, v1::JobState to, absl::string_view reason,
                           std::string message) {
  CHECK(IsAllowed(job.state(), to))
      << job.id() << " cannot go from " << v1::JobState_Name(job.state()) << " to "
      << v1::JobState_Name(to);
  if (IsWaiting(job.state()) && !IsWaiting(to)) owners_.OnUnqueued(job.status);
  if (!IsWaiting(job.state()) && IsWaiting(to)) owners_.OnQueued(job.status);
  const JobArray* const ended_array = jobs_.arrays().OnTransition(job, to);
  job.status.set_state(to);
  job.state_since = context_.now.steady;
  SetReason(job, reason, std::move(message));
  if (!IsTerminal(to)) return;
  DropDependencies(job);
  ended_.push_back({job.status.job_id(), to});
  if (job.status.array_id().empty()) {
    eviction_.Allow(job, job.finished);
  } else if (ended_array != nullptr) {
    ended_.push_back({ended_array->id, ended_array->state()});
    eviction_.Allow(*ended_array);
  }
}

void JobStates::SetReason(Job& job, absl::string_view reason, std::string message) {
  job.status.set_reason(std::string(reason));
  KeepFirst(kMessageBytes, message);
  job.status.set_message(std::move(message));
  UpdateTimeAccount(job, jobs_, context_);
  jobs_.MarkJob(job);
}

void JobStates::BeginGeneration(Job& job, v1::GenerationRecord record) {
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
  jobs_.BeginGeneration(job, std::move(record));
}

void JobStates::EndGeneration(Job& job) {
  const Ledger spent = EndGenerationTime(job, context_);
  owners_.OnEnd(job.status, CountSlots(job.generation->record), spent, job.generation_start);
  histories_.EndGeneration(job);
  job.run_time += std::max(context_.now.steady - job.generation_start, absl::ZeroDuration());
  jobs_.EndGeneration(job);
}

void JobStates::Finish(Job& job, v1::JobState state, absl::string_view reason, std::string message,
                       int exit_code) {
  job.restarting = false;
  owners_.OnFinish(job.status, job.submitted, state);
  job.finished = context_.now.steady;
  job.status.set_exit_code(exit_code);
  *job.status.mutable_finish_time() = ToProto(context_.now.wall);
  jobs_.AddEvent(job, events::kFinished, absl::StrCat(v1::JobState_Name(state), ": ", message));
  Transition(job, state, reason, std::move(message));
  context_.stats.Count("muster_jobs_finished_total",
                       {absl::AsciiStrToLower(v1::JobState_Name(state)), std::string(reason)});
}

void JobStates::OnAdded(const Job& job, const std::vector<Ended>& ended) {
  dependents_.Add(job);
  ended_.insert(ended_.end(), ended.begin(), ended.end());
  if (IsWaiting(job.state())) owners_.OnQueued(job.status);
  if (job.generation.has_value()) {
    owners_.RestoreRunning(job.status, CountSlots(job.generation->record));
  }
}

void JobStates::FinishRestore() {
  for (const auto& [id, array] : jobs_.arrays().all()) {
    if (array.ended()) eviction_.Allow(array);
  }
  // Decided when they ended, unless the store has been edited.
  for (const std::string& id : dependents_.Targets()) {
    const v1::JobState state = jobs_.StateOf(id);
    if (state == v1::JOB_STATE_UNSPECIFIED || IsTerminal(state)) ended_.push_back({id, state});
  }
}

void JobStates::DropDependencies(Job& job) {
  dependents_.Remove(job);
  job.after = After();
}

}  // namespace muster::core
