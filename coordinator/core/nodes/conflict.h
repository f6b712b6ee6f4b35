// Recognizes workers whose ranks this coordinator must leave alone.
#ifndef MUSTER_COORDINATOR_CORE_NODES_CONFLICT_H_
#define MUSTER_COORDINATOR_CORE_NODES_CONFLICT_H_

#include <functional>
#include <string>

#include "coordinator/core/store_identity.h"
#include "proto/muster/v1/worker.pb.h"

namespace muster::core {

// Returns why the worker's live ranks are not this coordinator's to place, stop or forget: they
// belong to another cluster, or the worker has seen a commit that this store does not have, which
// was therefore restored from a copy. Returns an empty string if there is no such reason or no live
// rank. Workers of protocol version 1 do not report their cluster: they are in conflict if they run
// a job for which `is_known` is false.
std::string ConflictOf(const v1::Hello& hello, const StoreIdentity& store,
                       const std::function<bool(const std::string& job)>& is_known);

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_NODES_CONFLICT_H_
