// Prepares messages for the coordinator, which ends a session when it cannot read a message.
#ifndef MUSTER_WORKER_AGENT_SESSION_OUTGOING_MESSAGE_H_
#define MUSTER_WORKER_AGENT_SESSION_OUTGOING_MESSAGE_H_

#include <cstddef>

#include "common/limits.h"
#include "proto/muster/v1/worker.pb.h"

namespace muster::agent {

// Replaces bytes that are not UTF-8 in the message's texts, and shortens its largest rank reports
// until it has at most `limit_bytes`. A shortened report keeps the rank's phase and exit, and has a
// warning.
void MakeReadable(v1::WorkerMessage& message, size_t limit_bytes = limits::kMessageBytes);

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_SESSION_OUTGOING_MESSAGE_H_
