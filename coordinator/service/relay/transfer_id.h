// Identifies a stream between a client and a worker that the coordinator relays.
#ifndef MUSTER_COORDINATOR_SERVICE_RELAY_TRANSFER_ID_H_
#define MUSTER_COORDINATOR_SERVICE_RELAY_TRANSFER_ID_H_

#include <cstdint>

#include "common/ids.h"

namespace muster::service {

// Random, so that a worker cannot guess the id of another worker's transfer.
using TransferId = StrongId<struct TransferIdTag, uint64_t>;

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_RELAY_TRANSFER_ID_H_
