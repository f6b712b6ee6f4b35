// The texts of `muster queue` and of forecasts: what jobs wait for and when they may start.
#ifndef MUSTER_CLI_TEXT_QUEUE_TEXT_H_
#define MUSTER_CLI_TEXT_QUEUE_TEXT_H_

#include <cstddef>
#include <string>

#include "absl/time/time.h"
#include "proto/muster/v1/cluster.pb.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::cli {

// "  rank 3 on node-2: phase STARTED, pid 4411, last seen 2.1 s ago", and on a further line what
// would remove it, if anything: "    -> muster node uncordon gpu-3". Ends with a newline.
std::string BlockerLines(const v1::WaitedFor& blocker);

// "would start now on node-1, node-2"; otherwise the job's position in the queue, what it would
// wait for, and when it could start. Without a newline at the end.
std::string ForecastText(const v1::Forecast& forecast, absl::Time now);

// A table of the queued jobs in the order in which they start; `wide` adds columns, otherwise lines
// are wrapped to `width` columns.
std::string QueueTable(const v1::GetQueueResponse& queue, bool wide, size_t width, absl::Time now);

// A table of the owners' use of the cluster, and how use decays.
std::string OwnerTable(const v1::GetQueueResponse& queue, size_t width);

}  // namespace muster::cli

#endif  // MUSTER_CLI_TEXT_QUEUE_TEXT_H_
