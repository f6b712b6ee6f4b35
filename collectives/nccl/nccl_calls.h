// Translates Operations to NCCL calls.
#ifndef MUSTER_COLLECTIVES_NCCL_NCCL_CALLS_H_
#define MUSTER_COLLECTIVES_NCCL_NCCL_CALLS_H_

#include <cstdint>

#include "absl/types/span.h"
#include "collectives/nccl/nccl_library.h"
#include "collectives/operation.h"

namespace muster::collectives {

// The NCCL communicator and stream on which operations run.
struct NcclGroup {
  NcclComm comm = nullptr;
  NcclStream stream = nullptr;
  uint32_t rank = 0;
  uint32_t size = 1;
  void* barrier_word = nullptr;  // an int32 in device memory
};

// Calls NCCL for one collective, or for any number of Sends and Recvs as one NCCL group. An
// AllToAll must not be in place. Returns NCCL's result; with a non-blocking communicator the call
// may only have started.
NcclResult CallNccl(const NcclLibrary& library, const NcclGroup& group,
                    absl::Span<const Operation> operations);

}  // namespace muster::collectives

#endif  // MUSTER_COLLECTIVES_NCCL_NCCL_CALLS_H_
