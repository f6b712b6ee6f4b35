// ncclCommSplit of the fake NCCL.
#ifndef MUSTER_COLLECTIVES_NCCL_TESTING_FAKE_SPLIT_H_
#define MUSTER_COLLECTIVES_NCCL_TESTING_FAKE_SPLIT_H_

#include <functional>

#include "collectives/nccl/testing/fake_comm.h"

namespace fake_nccl {

// Returns a step function for ncclCommSplit, which returns whether the split is complete. Only then
// is `part` set: null without a color, else a communicator that has yet to settle.
std::function<bool()> MakeSplit(NcclComm comm, int color, int key, NcclComm* part);

}  // namespace fake_nccl

#endif  // MUSTER_COLLECTIVES_NCCL_TESTING_FAKE_SPLIT_H_
