// The gloo backend: ranks of several nodes, over TCP.
#ifndef MUSTER_COLLECTIVES_GLOO_GLOO_H_
#define MUSTER_COLLECTIVES_GLOO_GLOO_H_

#include <memory>

#include "absl/status/statusor.h"
#include "collectives/communicator.h"

namespace muster::collectives {

enum class GlooConnect {
  kAtOnce,  // to the peers that every collective needs: all of a small group, the ring of a large
            // one
  kOnUse,   // each when an operation needs it
};

// Gloo moves the bytes; the algorithms are ours, because Gloo's own cannot be aborted. Large
// reductions go around a ring in chunks, small ones directly between all. Addresses are exchanged
// through options.store; whoever can connect to a listening port before the peer does takes its
// place, so the network has to be trusted. DEADLINE_EXCEEDED names the ranks that did not come
// within connect_timeout; UNAVAILABLE with the peer's rank.
absl::StatusOr<std::unique_ptr<Communicator>> CreateGloo(const GroupOptions& options,
                                                         GlooConnect connect);

}  // namespace muster::collectives

#endif  // MUSTER_COLLECTIVES_GLOO_GLOO_H_
