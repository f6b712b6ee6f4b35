// Reports: what ranks report about their training, such as losses and checkpoints.
#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/limits.h"
#include "common/time/proto_time.h"
#include "coordinator/core/reasons.h"
#include "coordinator/core/sessions/reports.h"

namespace muster::core {
namespace {

// The most events of a generation about losses of one kind.
constexpr uint32_t kLossEvents = 8;

}  // namespace

// Adds an event the first time, and then whenever the number has doubled: a job's history holds few
// events.
void Reports::RecordSkippedSteps(Job& job, const v1::Progress& progress) {
  const uint64_t skipped = progress.skipped_steps();
  const uint64_t reported = job.reported_skipped_steps;
  if (skipped == 0 || skipped / 2 < reported || skipped == reported) return;
  job.reported_skipped_steps = skipped;
  jobs_.table.AddEvent(
      job, events::kLossScaleLowered,
      absl::StrCat("the loss scale is ", absl::StrFormat("%.12g", progress.loss_scale()),
                   " at step ", progress.step(), ": gradients overflowed; ", skipped,
                   skipped == 1 ? " step" : " steps", " skipped in total"));
}

void Reports::RecordLossAnomalies(Job& job, const RankState& rank, const v1::Progress& progress) {
  if (progress.loss_anomalies().empty()) return;
  v1::LossEventsRecord& reported = job.loss_events;
  if (reported.generation() != job.status.generation()) {
    reported.Clear();
    reported.set_generation(job.status.generation());
  }
  for (const v1::LossAnomaly& anomaly : progress.loss_anomalies()) {
    const bool finite = std::isfinite(anomaly.loss());
    // The ranks of a command have the same loss, or similar ones, in the same steps.
    v1::LossEventsRecord::Kind& kind =
        finite ? *reported.mutable_spikes() : *reported.mutable_non_finite();
    if (anomaly.step() < kind.next_step() || kind.count() == kLossEvents) continue;
    kind.set_next_step(anomaly.step() + 1);
    kind.set_count(kind.count() + 1);
    jobs_.table.MarkJob(job);
    std::string message = anomaly.step() > 0 ? absl::StrCat("the loss of step ", anomaly.step())
                                             : std::string("the loss");
    if (!job.is_train()) absl::StrAppend(&message, " on rank ", rank.rank);
    // The sign of a NaN has no meaning.
    const double value = std::isnan(anomaly.loss()) ? std::abs(anomaly.loss()) : anomaly.loss();
    absl::StrAppend(&message, " is ", absl::StrFormat("%.6g", value));
    if (finite) {
      absl::StrAppend(&message, "; the median of the steps before is ",
                      absl::StrFormat("%.6g", anomaly.typical()));
    }
    if (kind.count() == kLossEvents) {
      absl::StrAppend(&message, "; later ones of this generation are not reported");
    }
    jobs_.table.AddEvent(job, finite ? events::kLossSpike : events::kLossNotFinite,
                         std::move(message));
  }
}

void Reports::RecordSummary(Job& job, const v1::TrainSummary& reported) {
  v1::TrainSummary& summary = *job.status.mutable_summary();
  summary = reported;
  if (summary.losses_size() > static_cast<int>(limits::kRecordedLosses)) {
    summary.mutable_losses()->Truncate(limits::kRecordedLosses);
  }
  if (summary.has_first_step_time()) {
    const absl::Time start = job.status.generation() == 1
                                 ? FromProto(job.status.submit_time())
                                 : context_.now.wall - (context_.now.steady - job.generation_start);
    summary.set_seconds_to_first_step(
        std::max(0.0, absl::ToDoubleSeconds(FromProto(summary.first_step_time()) - start)));
  }
  summary.set_resumed_from(job.status.checkpoint().continued_from());
  summary.set_resumed_job_id(job.status.checkpoint().continued_job_id());
  jobs_.table.MarkJob(job);
}

// Reports repeat the status, so only a change is written.
void Reports::RecordCheckpoint(Job& job, const v1::CheckpointStatus& reported) {
  const v1::CheckpointStatus before = job.status.checkpoint();
  v1::CheckpointStatus status = before;
  status.set_dir(reported.dir());
  status.set_shared(reported.shared());
  status.set_node(reported.node());
  status.set_step(reported.step());
  status.set_name(reported.name());
  status.set_best_name(reported.best_name());
  status.set_best_step(reported.best_step());
  status.set_failures(reported.failures());
  status.set_failed_step(reported.failed_step());
  status.set_failure(reported.failure());
  if (job.status.has_checkpoint() && status.SerializeAsString() == before.SerializeAsString()) {
    return;
  }
  *job.status.mutable_checkpoint() = std::move(status);
  jobs_.table.MarkJob(job);
  NoteCheckpointFailures(job, before);
  if (reported.dir() != before.dir() || reported.node() != before.node())
    NoteCheckpointLocation(job);
}

// Adds an event at the first failure, and then whenever the number has doubled: a job's history
// holds few events.
void Reports::NoteCheckpointFailures(Job& job, const v1::CheckpointStatus& before) {
  const v1::CheckpointStatus& status = job.status.checkpoint();
  if (status.failures() <= before.failures()) return;
  context_.stats.Count("muster_job_checkpoint_failures_total", {},
                       status.failures() - before.failures());
  if (std::bit_width(status.failures()) == std::bit_width(before.failures())) return;
  jobs_.table.AddEvent(
      job, events::kCheckpointFailed,
      absl::StrCat("the checkpoint of step ", status.failed_step(), " cannot be written to ",
                   status.dir(), status.node().empty() ? "" : absl::StrCat(" on ", status.node()),
                   ": ", status.failure(), "; ", status.failures(),
                   status.failures() == 1 ? " failure" : " failures", " in this generation"));
}

void Reports::NoteCheckpointLocation(Job& job) {
  const v1::CheckpointStatus& status = job.status.checkpoint();
  if (status.shared() || !job.is_train()) return;
  if (job.generation->record.nodes_size() < 2) return;
  jobs_.table.AddEvent(
      job, events::kCheckpointsOnOneNode,
      absl::StrCat("checkpoints are only on node ", status.node(), ", in ", status.dir(),
                   ": without that node a restart begins at step 0; start the "
                   "coordinator with --checkpoint-dir, or set train.checkpoint.dir to a "
                   "directory that all nodes share"));
}

}  // namespace muster::core
