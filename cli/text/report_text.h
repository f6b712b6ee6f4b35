// The text of `muster report`.
#ifndef MUSTER_CLI_TEXT_REPORT_TEXT_H_
#define MUSTER_CLI_TEXT_REPORT_TEXT_H_

#include <string>

#include "absl/time/time.h"
#include "proto/muster/v1/cluster.pb.h"

namespace muster::cli {

// A table with a row per owner and a total, and the cluster's utilization below it. `wide` adds
// columns.
std::string ReportText(const v1::GetReportResponse& report, bool wide);

}  // namespace muster::cli

#endif  // MUSTER_CLI_TEXT_REPORT_TEXT_H_
