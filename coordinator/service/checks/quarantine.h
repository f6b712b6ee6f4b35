// Brings a worker's messages within common/limits.h, so that nothing that a rank or a worker
// reports ends a session: a field out of bounds is truncated or dropped, and the rest of the
// message is used.
#ifndef MUSTER_COORDINATOR_SERVICE_CHECKS_QUARANTINE_H_
#define MUSTER_COORDINATOR_SERVICE_CHECKS_QUARANTINE_H_

#include <optional>

#include "common/report_bounds.h"
#include "proto/muster/v1/worker.pb.h"

namespace muster::service {

// Corrects a Hello with a valid name and incarnation; see ValidateHello.
Corrections Quarantine(v1::Hello& hello);

struct Quarantined {
  Corrections corrections;
  // Refuses a rank's call that cannot be valid.
  std::optional<v1::CoordinatorMessage> refusal;
};
// Corrects any other message. Clears a message of which nothing can be used.
Quarantined Quarantine(v1::WorkerMessage& message);

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_CHECKS_QUARANTINE_H_
