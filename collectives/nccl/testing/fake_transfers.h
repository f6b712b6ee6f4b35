// Data transfers and reductions of the fake NCCL. Steps never block and run on the thread that
// queries the stream.
#ifndef MUSTER_COLLECTIVES_NCCL_TESTING_FAKE_TRANSFERS_H_
#define MUSTER_COLLECTIVES_NCCL_TESTING_FAKE_TRANSFERS_H_

#include <cstddef>
#include <functional>
#include <vector>

#include "collectives/nccl/testing/fake_comm.h"

namespace fake_nccl {

size_t BytesOf(size_t count, NcclDataType type);

enum Kind { kAllReduce, kReduceScatter, kAllGather, kBroadcast, kReduce };

// Returns a step function for a collective, which returns whether the collective is complete; the
// next call then starts it again. Ranks that call different operations are misuse.
std::function<bool()> MakeCollective(NcclComm comm, Kind kind, const void* send, void* recv,
                                     size_t count, NcclDataType type, NcclRedOp op, int root);

struct Message {
  bool send;
  char* data;
  size_t bytes;
  int peer;
  size_t done = 0;
  bool finished = false;
};

// Returns a step function for a group of concurrent sends and receives; those of one peer and
// direction stay in order. Nothing is buffered: a send completes when it has been received.
std::function<bool()> MakeMessages(NcclComm comm, std::vector<Message> messages);

}  // namespace fake_nccl

#endif  // MUSTER_COLLECTIVES_NCCL_TESTING_FAKE_TRANSFERS_H_
