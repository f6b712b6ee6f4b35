// Rebuilds jobs from what workers know about the ranks that they run. Used when the coordinator's
// store has lost them.
#ifndef MUSTER_COORDINATOR_CORE_RECOVERY_REBUILD_H_
#define MUSTER_COORDINATOR_CORE_RECOVERY_REBUILD_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/core/jobs/job.h"
#include "proto/muster/v1/store.pb.h"
#include "proto/muster/v1/worker.pb.h"

namespace muster::core {

// The records of one worker.
struct NodeRecords {
  std::string node;
  std::string address;
  uint64_t incarnation = 0;
  v1::JobRecords records;
};

// A job as of the newest generation that any worker reported.
struct RebuiltJob {
  // The job in state QUEUED, without generation, times and place in the queue.
  Job job;
  uint64_t generation = 0;
  // The generation with all its nodes; nullopt if a node is missing or the parts do not match.
  std::optional<v1::GenerationRecord> record;
  // Known and missing parts, e.g. "generation 2 has ranks on 3 nodes, of which only a and b reported
  // it".
  std::string summary;
};

// Returns each job that the workers reported once, ordered by id.
std::vector<RebuiltJob> RebuildJobs(const std::vector<NodeRecords>& nodes);

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_RECOVERY_REBUILD_H_
