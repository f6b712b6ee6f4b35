// How the ranks of the fake NCCL tell one another a few numbers.
#ifndef MUSTER_COLLECTIVES_NCCL_TESTING_FAKE_EXCHANGE_H_
#define MUSTER_COLLECTIVES_NCCL_TESTING_FAKE_EXCHANGE_H_

#include <functional>

#include "collectives/nccl/testing/fake_comm.h"

namespace fake_nccl {

// Goes on with a call of all ranks -> whether it has come to its end: when all have said theirs,
// which `read` finds in their states.
std::function<bool()> MakeExchange(NcclComm comm, Said said, std::function<void()> read);

}  // namespace fake_nccl

#endif  // MUSTER_COLLECTIVES_NCCL_TESTING_FAKE_EXCHANGE_H_
