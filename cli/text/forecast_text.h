// The text of `muster submit --dry-run`.
#ifndef MUSTER_CLI_TEXT_FORECAST_TEXT_H_
#define MUSTER_CLI_TEXT_FORECAST_TEXT_H_

#include <string>

#include "absl/time/time.h"
#include "proto/muster/v1/cluster.pb.h"

namespace muster::cli {

// "would start now on node-1, node-2"; otherwise the job's position in the queue, what it would
// wait for, and when it could start. Without a newline at the end.
std::string ForecastText(const v1::Forecast& forecast, absl::Time now);

}  // namespace muster::cli

#endif  // MUSTER_CLI_TEXT_FORECAST_TEXT_H_
