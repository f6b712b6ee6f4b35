// Operations as calls of NCCL's.
#ifndef MUSTER_COLLECTIVES_NCCL_NCCL_CALLS_H_
#define MUSTER_COLLECTIVES_NCCL_NCCL_CALLS_H_

#include <cstdint>

#include "absl/types/span.h"
#include "collectives/nccl/nccl_library.h"
#include "collectives/operation.h"

namespace muster::collectives {

// Where the operations of a communicator run.
struct NcclGroup {
  NcclComm comm = nullptr;
  NcclStream stream = nullptr;
  uint32_t rank = 0;
  uint32_t size = 1;
  void* barrier_word = nullptr;  // an int32 in the device's memory
};

// Calls NCCL for one collective, or for any number of Sends and Recvs, which go as one group. An
// AllToAll is not in place. Gives back what NCCL does of the call: a communicator that is
// non-blocking may only have begun.
NcclResult CallNccl(const NcclLibrary& library, const NcclGroup& group,
                    absl::Span<const Operation> operations);

}  // namespace muster::collectives

#endif  // MUSTER_COLLECTIVES_NCCL_NCCL_CALLS_H_
