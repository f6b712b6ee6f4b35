// Merges what a rank reports into the state that its worker keeps.
#ifndef MUSTER_WORKER_AGENT_GENERATION_RANK_REPORT_H_
#define MUSTER_WORKER_AGENT_GENERATION_RANK_REPORT_H_

#include "proto/muster/v1/rank.pb.h"
#include "proto/muster/v1/worker.pb.h"

namespace muster::agent {

// Merges the request without its progress, which is not kept on disk. Returns whether `report` has
// changed.
bool MergeReport(const v1::ReportRequest& request, v1::RankReport& report);

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_GENERATION_RANK_REPORT_H_
