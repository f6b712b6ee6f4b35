// NCCL says that a peer is gone or that nothing moves, and not which rank it is. The ranks find out
// among themselves: each that fails says so in the group's store, and the one to blame says
// nothing.
#ifndef MUSTER_COLLECTIVES_NCCL_FAILED_PEER_H_
#define MUSTER_COLLECTIVES_NCCL_FAILED_PEER_H_

#include "absl/status/status.h"
#include "collectives/communicator.h"

namespace muster::collectives {

// Says that this rank failed, and asks the others for at most half a second. Gives back `status`
// with the silent ones in its words. It has them as its payload kPeerRankPayload where that is
// certain enough: after a time-out (DEADLINE_EXCEEDED), when all ranks give up at about the same
// moment, the first of them; else one that alone is silent. What is neither a time-out nor
// UNAVAILABLE is this rank's own failure and comes back as it is. A group larger than some 60 ranks
// is asked only as far as that, beginning behind this rank, so that one rank's end does not make
// the coordinator answer a square of questions.
absl::Status IdentifyFailedPeer(const GroupOptions& options, const absl::Status& status);

}  // namespace muster::collectives

#endif  // MUSTER_COLLECTIVES_NCCL_FAILED_PEER_H_
