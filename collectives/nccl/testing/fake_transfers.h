// What moves and reduces the fake NCCL's data. Steps go on without blocking, by the thread that
// asks the stream.
#ifndef MUSTER_COLLECTIVES_NCCL_TESTING_FAKE_TRANSFERS_H_
#define MUSTER_COLLECTIVES_NCCL_TESTING_FAKE_TRANSFERS_H_

#include <cstddef>
#include <functional>
#include <vector>

#include "collectives/nccl/testing/fake_comm.h"

namespace fake_nccl {

size_t BytesOf(size_t count, NcclDataType type);

enum Kind { kAllReduce, kReduceScatter, kAllGather, kBroadcast, kReduce };

// Goes on with a collective -> whether it has come to its end, after which it begins anew. Ranks
// that call something else than this one are misuse.
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

// The same with a group of sends and receives, which go on at once; those of one peer and direction
// in their order. Nothing is buffered: a send ends when it has been received.
std::function<bool()> MakeMessages(NcclComm comm, std::vector<Message> messages);

}  // namespace fake_nccl

#endif  // MUSTER_COLLECTIVES_NCCL_TESTING_FAKE_TRANSFERS_H_
