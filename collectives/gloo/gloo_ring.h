// Ring reduce-scatter and all-gather in chunks: each rank sends to the next rank and receives from
// the previous one, so that every connection carries about twice the data, regardless of the number
// of ranks.
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
  uint64_t slot = 0;  // this slot and the next are reserved for the ring
  DataType type = DataType::kUint8;
  ReduceOp op = ReduceOp::kSum;
  // Segment i of the buffers holds elements [bounds[i], bounds[i + 1]).
  std::vector<size_t> bounds;
  std::vector<std::byte>* scratch = nullptr;  // kept between calls
};

// Bounds that divide `count` elements into `size` segments whose lengths differ by at most one.
std::vector<size_t> EqualSegments(size_t count, uint32_t size);

// recv = reduction of send over all ranks. send == recv is in place.
absl::Status RingAllReduce(GlooTransport* transport, const RingOptions& options, const void* send,
                           void* recv);

// Like RingAllReduce, but only segment `rank` of recv is complete at the end; the others hold
// intermediate sums.
absl::Status RingReduceScatter(GlooTransport* transport, const RingOptions& options,
                               const void* send, void* recv);

// Gathers all segments; segment `rank` of data is this rank's input.
absl::Status RingAllGather(GlooTransport* transport, const RingOptions& options, void* data);

}  // namespace muster::collectives

#endif  // MUSTER_COLLECTIVES_GLOO_GLOO_RING_H_
