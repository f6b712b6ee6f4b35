#include "worker/agent/generation/rank_report.h"

namespace muster::agent {

bool MergeReport(const v1::ReportRequest& request, v1::RankReport& report) {
  // Each report repeats the latest status.
  const bool saved = request.has_checkpoint() && request.checkpoint().SerializeAsString() !=
                                                     report.checkpoint().SerializeAsString();
  if (request.phase() == v1::CONNECTED) report.set_phase(v1::CONNECTED);
  if (request.has_failure()) *report.mutable_failure() = request.failure();
  if (request.has_summary()) *report.mutable_summary() = request.summary();
  if (saved) *report.mutable_checkpoint() = request.checkpoint();
  return request.phase() == v1::CONNECTED || request.has_failure() || request.has_summary() ||
         saved;
}

}  // namespace muster::agent
