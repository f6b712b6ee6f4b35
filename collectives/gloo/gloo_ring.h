// Reduce-scatter and all-gather around a ring, in chunks: each rank sends to the next and receives
// from the one before, so that every connection carries every byte about twice, however many ranks
// there are.
#ifndef MUSTER_COLLECTIVES_GLOO_GLOO_RING_H_
#define MUSTER_COLLECTIVES_GLOO_GLOO_RING_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "collectives/communicator.h"
#include "collectives/gloo/gloo_transport.h"

namespace muster::collectives {

struct RingOptions {
  uint32_t rank = 0;
  uint32_t size = 1;
  uint64_t slot = 0;  // this and the next are the ring's alone
  DataType type = DataType::kUint8;
  ReduceOp op = ReduceOp::kSum;
  // Segment i of the buffers is the elements [bounds[i], bounds[i + 1]).
  std::vector<size_t> bounds;
  std::vector<std::byte>* scratch = nullptr;  // kept between calls
};

// The bounds of `size` segments of `count` elements, as equal as can be.
std::vector<size_t> EqualSegments(size_t count, uint32_t size);

// recv = the reduction of send over all ranks. send == recv is in place.
absl::Status RingAllReduce(GlooTransport* transport, const RingOptions& options, const void* send,
                           void* recv);

// As RingAllReduce, but only segment `rank` of recv is complete in the end; the others hold
// intermediate sums.
absl::Status RingReduceScatter(GlooTransport* transport, const RingOptions& options,
                               const void* send, void* recv);

// Segment `rank` of data is this rank's; the others are received.
absl::Status RingAllGather(GlooTransport* transport, const RingOptions& options, void* data);

}  // namespace muster::collectives

#endif  // MUSTER_COLLECTIVES_GLOO_GLOO_RING_H_
