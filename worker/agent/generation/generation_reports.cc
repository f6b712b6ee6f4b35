// The part of Generation that takes what its ranks report.
#include <optional>

#include "common/now.h"
#include "common/report_bounds.h"
#include "common/status.h"
#include "worker/agent/generation/generation.h"
#include "worker/agent/generation/rank_report.h"

namespace muster::agent {

void Generation::ReadProgress() {
  for (auto& [number, rank] : ranks_) {
    if (rank.progress == nullptr || rank.shim == nullptr) continue;
    const std::optional<v1::Progress> progress = rank.progress->Read(Now());
    if (progress.has_value()) TakeProgress(rank, *progress);
    if (AddWarning(rank.progress->TakeWarning(), rank.report)) Changed(rank);
  }
}

void Generation::TakeProgress(RankState& rank, const v1::Progress& progress) {
  // Report changes of phase at once; other changes can wait for the next heartbeat.
  const v1::Progress& before = rank.report.progress();
  const bool is_new_phase = progress.phase() != before.phase() ||
                            (progress.has_first_step_time() && !before.has_first_step_time());
  if (rank.shim != nullptr && IsActivity(rank, progress)) rank.shim->MarkActive();
  *rank.report.mutable_progress() = progress;
  const int warnings = rank.report.warnings_size();
  Clamp(rank.report);
  context_.progress->Update(job_id(), number(), rank.report);
  if (is_new_phase || rank.report.warnings_size() > warnings) Changed(rank);
}

absl::Status Generation::Report(const v1::ReportRequest& request) {
  RankState& rank = ranks_[request.identity().rank()];
  if (rank.report.phase() == v1::EXITED) return absl::AbortedError("the rank is over");
  if (request.has_progress()) TakeProgress(rank, request.progress());
  if (!MergeReport(request, rank.report)) return absl::OkStatus();
  Clamp(rank.report);
  RETURN_IF_ERROR(Persist(rank, request.has_summary()));
  Changed(rank);
  return absl::OkStatus();
}

}  // namespace muster::agent
