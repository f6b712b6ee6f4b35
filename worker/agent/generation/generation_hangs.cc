// The part of Generation that reports and inspects silent ranks.
#include <algorithm>
#include <optional>
#include <utility>

#include "absl/time/time.h"
#include "common/now.h"
#include "common/proto_time.h"
#include "worker/agent/generation/generation.h"

namespace muster::agent {

v1::RankReport Generation::ReportOf(const RankState& rank) const {
  v1::RankReport report = rank.report;
  if (FromProto(launch_.spec().hang_timeout()) == absl::ZeroDuration()) return report;
  *report.mutable_silence() = ToProto(SilenceOf(rank));
  return report;
}

absl::Duration Generation::SilenceOf(const RankState& rank) const {
  if (!rank.silent_since.has_value()) return absl::ZeroDuration();
  // Zero would mean activity.
  return std::max(absl::Milliseconds(1),
                  absl::Trunc(Now().steady - *rank.silent_since, absl::Milliseconds(1)));
}

bool Generation::IsActivity(const RankState& rank, const v1::Progress& progress) {
  if (rank.progress != nullptr) return true;  // a command has written a line
  // A native rank reports periodically, even while it waits.
  const v1::Progress& before = rank.report.progress();
  return progress.step() != before.step() || progress.samples() != before.samples() ||
         progress.phase() != before.phase() ||
         progress.phase_progress() != before.phase_progress() ||
         progress.collective_sequence() != before.collective_sequence();
}

void Generation::OnSilence(RankState& rank, absl::Duration silence) {
  rank.silent_since.reset();
  if (silence > absl::ZeroDuration()) rank.silent_since = Now().steady - silence;
  Changed(rank);
}

void Generation::Inspect() {
  for (auto& [number, rank] : ranks_) {
    if (rank.shim != nullptr) rank.shim->Inspect();
  }
}

void Generation::OnInspected(const RankState& rank,
                             const std::optional<shim::Inspection>& inspection) {
  // Without an answer, the coordinator does not wait long.
  if (!inspection.has_value()) return;
  v1::WorkerMessage message;
  v1::InspectionReport& report = *message.mutable_inspection();
  report.set_job_id(job_id());
  report.set_generation(number());
  v1::RankInspection& seen = *report.add_ranks();
  seen.set_rank(rank.report.rank());
  seen.set_state(inspection->state);
  *seen.mutable_silence() = ToProto(SilenceOf(rank));
  seen.set_cpu_ratio(inspection->cpu_ratio);
  seen.set_waits_in(inspection->waits_in);
  seen.set_stack(inspection->stack);
  context_.send(std::move(message));
}

}  // namespace muster::agent
