// Identifies the rank to blame when NCCL reports a lost peer or a timeout, which NCCL itself does
// not. Each rank that fails reports so in the group's store; the rank to blame reports nothing.
#ifndef MUSTER_COLLECTIVES_NCCL_FAILED_PEER_H_
#define MUSTER_COLLECTIVES_NCCL_FAILED_PEER_H_

#include "absl/status/status.h"
#include "collectives/communicator.h"

namespace muster::collectives {

// Publishes that this rank failed and checks the reports of the others for at most half a second.
// Returns `status` with the ranks that have not reported appended to the message. The payload
// kPeerRankPayload is set only where the cause is certain enough: after a timeout
// (DEADLINE_EXCEEDED), when all ranks give up at about the same time, to the first of those ranks;
// otherwise if exactly one rank has not reported. A status that is neither DEADLINE_EXCEEDED nor
// UNAVAILABLE is this rank's own failure and is returned unchanged. In groups of more than about 60
// ranks only the next ranks after this one are checked, so that one rank's failure does not cause a
// quadratic number of requests to the coordinator.
absl::Status IdentifyFailedPeer(const GroupOptions& options, const absl::Status& status);

}  // namespace muster::collectives

#endif  // MUSTER_COLLECTIVES_NCCL_FAILED_PEER_H_
