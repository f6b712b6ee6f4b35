// How a communicator of the fake NCCL is taken apart.
#ifndef MUSTER_COLLECTIVES_NCCL_TESTING_FAKE_SPLIT_H_
#define MUSTER_COLLECTIVES_NCCL_TESTING_FAKE_SPLIT_H_

#include <functional>

#include "collectives/nccl/testing/fake_comm.h"

namespace fake_nccl {

// Goes on with ncclCommSplit -> whether it has come to its end. Only then is `part` there: null
// without a color, else a communicator that has yet to settle.
std::function<bool()> MakeSplit(NcclComm comm, int color, int key, NcclComm* part);

}  // namespace fake_nccl

#endif  // MUSTER_COLLECTIVES_NCCL_TESTING_FAKE_SPLIT_H_
