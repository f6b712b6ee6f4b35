// The software and hardware that run a generation, for the job's history.
#ifndef MUSTER_COORDINATOR_CORE_NODE_ENVIRONMENTS_H_
#define MUSTER_COORDINATOR_CORE_NODE_ENVIRONMENTS_H_

#include <vector>

#include "coordinator/core/nodes/node_table.h"
#include "proto/muster/v1/store.pb.h"

namespace muster::core {

// One element per node of the generation, by node rank, with the GPUs that its ranks use there.
std::vector<v1::NodeEnvironmentRecord> EnvironmentsOf(const v1::GenerationRecord& generation,
                                                      const NodeTable& nodes);

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_NODE_ENVIRONMENTS_H_
