// Exchanges small data between the ranks of the fake NCCL.
#ifndef MUSTER_COLLECTIVES_NCCL_TESTING_FAKE_EXCHANGE_H_
#define MUSTER_COLLECTIVES_NCCL_TESTING_FAKE_EXCHANGE_H_

#include <functional>

#include "collectives/nccl/testing/fake_comm.h"

namespace fake_nccl {

// Returns a step function for a collective call, which returns whether the call is complete: when
// all ranks have contributed their data, which `read` finds in their states.
std::function<bool()> MakeExchange(NcclComm comm, ExchangeData data, std::function<void()> read);

}  // namespace fake_nccl

#endif  // MUSTER_COLLECTIVES_NCCL_TESTING_FAKE_EXCHANGE_H_
