// Reads the end of a finished log, which the coordinator keeps in case the node disappears.
#ifndef MUSTER_WORKER_AGENT_LOGS_LOG_TAIL_H_
#define MUSTER_WORKER_AGENT_LOGS_LOG_TAIL_H_

#include <optional>
#include <string>

#include "proto/muster/v1/cluster.pb.h"

namespace muster::agent {

// The last limits::kLogTailBytes of the log, from the start of a line if there is one, with the
// times of at most limits::kLogTailLines lines, and with a notice of the output that the log lacks.
// Absent if the log is empty and lacks nothing, or cannot be read.
std::optional<v1::LogChunk> ReadLogTail(const std::string& path);

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_LOGS_LOG_TAIL_H_
