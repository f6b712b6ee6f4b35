// The gloo backend: ranks on several nodes, connected over TCP.
#ifndef MUSTER_COLLECTIVES_GLOO_GLOO_H_
#define MUSTER_COLLECTIVES_GLOO_GLOO_H_

#include <memory>

#include "absl/status/statusor.h"
#include "collectives/communicator.h"

namespace muster::collectives {

enum class GlooConnect {
  kAtOnce,  // connect to all peers of a small group, to the ring neighbours of a large one
  kOnUse,   // connect to each peer when an operation needs it
};

// Gloo moves the data; the algorithms are implemented here, because Gloo's own cannot be aborted.
// Large reductions use a chunked ring, small ones direct exchange. Addresses are exchanged through
// options.store. The network must be trusted: a process that connects to a listening port before
// the peer does takes the peer's place. DEADLINE_EXCEEDED names the ranks that did not connect
// within connect_timeout; UNAVAILABLE carries the peer's rank.
absl::StatusOr<std::unique_ptr<Communicator>> CreateGloo(const GroupOptions& options,
                                                         GlooConnect connect);

}  // namespace muster::collectives

#endif  // MUSTER_COLLECTIVES_GLOO_GLOO_H_
