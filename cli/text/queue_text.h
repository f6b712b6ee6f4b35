// The text of `muster queue`.
#ifndef MUSTER_CLI_TEXT_QUEUE_TEXT_H_
#define MUSTER_CLI_TEXT_QUEUE_TEXT_H_

#include <cstddef>
#include <string>

#include "absl/time/time.h"
#include "proto/muster/v1/cluster.pb.h"

namespace muster::cli {

// A table of the queued jobs in the order in which they start; `wide` adds columns, otherwise lines
// are wrapped to `width` columns.
std::string QueueTable(const v1::GetQueueResponse& queue, bool wide, size_t width, absl::Time now);

// A table of the owners' use of the cluster, and how use decays.
std::string OwnerTable(const v1::GetQueueResponse& queue, size_t width);

}  // namespace muster::cli

#endif  // MUSTER_CLI_TEXT_QUEUE_TEXT_H_
