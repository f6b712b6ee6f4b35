// Answers ReadLog with the end of a log that the coordinator kept.
#ifndef MUSTER_COORDINATOR_SERVICE_RELAY_LOG_TAIL_CHUNK_H_
#define MUSTER_COORDINATOR_SERVICE_RELAY_LOG_TAIL_CHUNK_H_

#include "absl/strings/string_view.h"
#include "proto/muster/v1/cluster.pb.h"
#include "proto/muster/v1/worker.pb.h"

namespace muster::service {

// The only chunk of the answer: what the request selects of the tail, with a notice that contains
// `reason`, why the log itself is not read, and with the tail's own notice.
v1::LogChunk LogTailChunk(const v1::ReadLogRequest& request, const v1::LogTail& tail,
                          absl::string_view reason);

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_RELAY_LOG_TAIL_CHUNK_H_
