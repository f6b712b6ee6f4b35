// The text of `muster report`, and of what the time of jobs was spent on.
#ifndef MUSTER_CLI_TEXT_REPORT_TEXT_H_
#define MUSTER_CLI_TEXT_REPORT_TEXT_H_

#include <string>

#include "proto/muster/v1/cluster.pb.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::cli {

// "91.2 %, 1h52m productive of 2h3m with slots". Empty if the job has held no slots.
std::string GoodputText(const v1::Goodput& goodput);

// One line per cause, with its share of the time since the submission:
//
//      1h52m   88.1 %  productive
//      3m10s    2.5 %  lost to node-3
//
// Causes that took hardly any time are left out. Empty if the job has no account.
std::string TimeByCauseText(const v1::Goodput& goodput);

// A table of the slot hours that were not productive, by owner and cause. Causes that took hardly
// any are left out; empty if there are no others.
std::string LostHoursTable(const v1::GetReportResponse& report);

// "91.2 %"; empty if the owner's jobs have held no slots.
std::string GoodputCell(const v1::GetReportResponse::Owner& owner);

// A table with a row per owner and a total, and the cluster's utilization below it. `wide` adds
// columns.
std::string ReportText(const v1::GetReportResponse& report, bool wide);

}  // namespace muster::cli

#endif  // MUSTER_CLI_TEXT_REPORT_TEXT_H_
