#include "coordinator/core/jobs/job_time.h"

#include <algorithm>
#include <optional>
#include <string>

#include "common/time/proto_time.h"
#include "coordinator/core/reasons.h"

namespace muster::core {
namespace {

// The activity of a RUNNING job by the phase that rank 0 reports. All ranks evaluate and take
// checkpoints at the same time. Commands use other phases, too.
v1::TimeCause ActivityOfPhase(const std::string& phase, bool is_train) {
  if (phase == "loading-data") return v1::TIME_PREPARING_DATA;
  if (phase == "evaluating") return v1::TIME_EVALUATING;
  if (phase == "checkpointing") return v1::TIME_CHECKPOINT_STALL;
  if (phase == "finished") return v1::TIME_STOPPING;
  const bool starts = phase == "starting" || phase == "opening-device" || phase == "connecting" ||
                      phase == "verifying-checkpoint";
  return is_train && starts ? v1::TIME_STARTING : v1::TIME_PRODUCTIVE;
}

v1::TimeCause ActivityOf(const Job& job) {
  switch (job.state()) {
    case v1::HELD:
      return v1::TIME_HELD;
    case v1::STARTING:
      return job.generation->preparing_data > 0 ? v1::TIME_PREPARING_DATA : v1::TIME_STARTING;
    case v1::RUNNING:
      // Without a hang_timeout, only a step takes longer than usual.
      if (job.status.has_hang() && FromProto(job.spec().hang_timeout()) > absl::ZeroDuration()) {
        return v1::TIME_HUNG;
      }
      return ActivityOfPhase(job.status.progress().phase(), job.is_train());
    case v1::STOPPING:
      if (job.ending.outcome == v1::FAILED) return v1::TIME_RECOVERY;
      return job.ending.outcome == v1::QUEUED ? v1::TIME_REQUEUE : v1::TIME_STOPPING;
    default:
      return v1::TIME_QUEUED;
  }
}

// Returns the node that is to blame for the failure of the living generation; nullopt if there is
// none.
std::optional<std::string> LostNode(const Job& job) {
  const v1::FirstFailure& failure = job.status.first_failure();
  const bool of_generation =
      job.status.has_first_failure() && failure.generation() == job.generation->record.generation();
  if (!of_generation) return std::nullopt;
  // A launch that would fail anywhere is the job's own failure.
  const bool of_node =
      failure.reason() == reasons::kNodeLost ||
      (failure.reason() == reasons::kLaunchFailed && !failure.exit().failure().not_retryable());
  return of_node ? std::make_optional(failure.node()) : std::nullopt;
}

// Adds the time that has been settled to the cluster's totals.
void CountSettledTime(Job& job, Context& context) {
  context.stats.OnTimeSettled(job.time_account.TakeSettled());
}

}  // namespace

SlotCount CountSlots(const v1::GenerationRecord& record) {
  SlotCount slots;
  for (const v1::NodePlacement& node : record.nodes()) {
    for (const v1::RankRecord& rank : node.ranks()) slots.cpu += rank.slots_size();
  }
  slots.gpu = std::min(slots.cpu, record.gpu_slots());
  slots.cpu -= slots.gpu;
  slots.cpu += record.idle_cpu_slots();
  slots.gpu += record.idle_gpu_slots();
  return slots;
}

void UpdateTimeAccount(Job& job, JobTable& jobs, Context& context) {
  if (IsTerminal(job.state())) {
    job.time_account.Close(context.now);
    CountSettledTime(job, context);
    return;
  }
  // A generation that has just ended is followed by the next state in the same step.
  if (IsActive(job.state()) && !job.generation.has_value()) return;
  if (job.generation.has_value()) {
    const RankState& first = job.generation->ranks[0];
    const v1::Progress& progress = job.status.progress();
    // A rank's last progress may be older than the step at which it failed.
    const uint64_t failed_at =
        std::max(first.failure.has_value() ? first.failure->step() : 0,
                 uint64_t{job.generation->RecordOf(first).exit().failure().step()});
    job.time_account.ReportStep(std::max(uint64_t{progress.step()}, failed_at),
                                absl::Seconds(progress.checkpoint_stall_seconds()), context.now);
  }
  job.time_account.Enter(ActivityOf(job), context.now);
  CountSettledTime(job, context);
  if (job.time_account.IsWriteDue(context.now.steady)) jobs.MarkJob(job);
}

Ledger EndGenerationTime(Job& job, Context& context) {
  Ledger spent = job.time_account.EndGeneration(LostNode(job), context.now);
  CountSettledTime(job, context);
  return spent;
}

void RestoreTimeAccount(Job& job, const Context& context) {
  if (job.time_account.is_open() || IsTerminal(job.state())) {
    job.time_account.Resume(context.now);
    return;
  }
  const absl::Duration before =
      job.submitted > SteadyTime() ? context.now.steady - job.submitted : absl::ZeroDuration();
  job.time_account = TimeAccount(job.is_train(), before, context.now);
  if (job.generation.has_value()) {
    job.time_account.BeginGeneration(CountSlots(job.generation->record).total(), context.now);
  }
  job.time_account.Enter(ActivityOf(job), context.now);
}

}  // namespace muster::core
